//! The Network Block Device protocol as machines without IO: fixed newstyle handshake, metadata
//! contexts, simple and structured replies.
//!
//! ```text
//!  client::Handshake                      server::Handshake
//!    │ ◄──────────── greeting, flags ─────── │
//!    │ ── flags, options ──────────────────► │  which exports, what they are like, what both can do
//!    │ ◄───────────────────────── answers ── │
//!  client::Transmission                   server::Transmission
//!    │ ── requests ────────────────────────► │
//!    │ ◄───────────────────────── replies ── │  server::Replies, in any order
//! ```
//!
//! Bytes are arguments, outputs are returned; sockets and time are for the caller. What the other
//! side sends is held against what was negotiated: a request that breaks it is refused, a stream
//! that cannot be understood ends with a [`ProtocolError`]. No input panics, and none makes a
//! machine hold more than it says.
//!
//! Sections are those of the protocol's document, `doc/proto.md` of NetworkBlockDevice/nbd, which is
//! in the public domain; names in capitals are its terms.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod block_sizes;
pub mod client;
mod cookie;
mod errno;
mod error;
mod export;
mod extent;
mod meta_context;
mod negotiated;
mod option;
mod reply;
mod request;
pub mod server;
mod terms;
mod text;
mod transmission_flags;

pub use block_sizes::{BlockSizes, MAX_PAYLOAD};
pub use cookie::Cookie;
pub use errno::Errno;
pub use error::ProtocolError;
pub use export::Export;
pub use extent::Extent;
pub use meta_context::{BASE_ALLOCATION, MetaContext};
pub use option::OptionError;
pub use reply::ReplyHead;
pub use request::{Command, Request};
pub use terms::Breach;
pub use text::MAX_STRING;
pub use transmission_flags::TransmissionFlags;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
