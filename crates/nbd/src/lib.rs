//! The Network Block Device protocol as state machines without IO: fixed newstyle handshake, metadata
//! contexts, simple and structured replies.
//!
//! ```text
//!  client::Handshake                      server::Handshake
//!    │ ◄──────────── greeting, flags ─────── │
//!    │ ── flags, options ──────────────────► │  list of exports, properties of an export, common features
//!    │ ◄───────────────────────── answers ── │
//!  client::Transmission                   server::Transmission
//!    │ ── requests ────────────────────────► │
//!    │ ◄───────────────────────── replies ── │  server::Replies, in any order
//! ```
//!
//! Input bytes are arguments, and output bytes are returned; the caller does the IO and the timing. The
//! messages of the other side are checked against the negotiated terms: a request that breaks them is
//! refused, and a stream that cannot be parsed ends with a [`ProtocolError`]. No input causes a panic, or
//! makes a state machine use more memory than documented.
//!
//! Section names are those of the protocol's document, `doc/proto.md` of NetworkBlockDevice/nbd, which is in
//! the public domain; names in capitals are its terms.
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

/// Compiles the code examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
