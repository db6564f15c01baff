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
//! It is meant for servers and clients on any runtime. The README has a server's handshake; this is a request of a
//! client:
//!
//! ```
//! use bytes::BytesMut;
//! use iscsi_nbd::Export;
//! use iscsi_nbd::client::{Negotiated, Transmission};
//!
//! // A handshake returns this.
//! let export = Export { size: 1 << 20, ..Export::default() };
//! let mut client = Transmission::new(&Negotiated { export, ..Negotiated::default() });
//! let request = client.read_into(0, BytesMut::zeroed(4096))?;
//! let mut to_server = Vec::new();
//! to_server.extend_from_slice(&request.encode());
//! assert_eq!(client.requests().len(), 1);
//! # Ok::<(), iscsi_nbd::Breach>(())
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`server::Handshake`], [`client::Handshake`] | the negotiation; it ends with [`client::Negotiated`] |
//! | [`server::Transmission`], [`server::Replies`] | requests of a client, and the replies to them |
//! | [`client::Transmission`] | requests in flight, and the replies to them |
//! | [`Export`], [`BlockSizes`], [`TransmissionFlags`] | what a server says of a device |
//! | [`Request`], [`Command`], [`Cookie`], [`Errno`], [`Extent`] | a request and the parts of its reply |
//! | [`Breach`], [`ProtocolError`] | a request that breaks the terms, a stream that cannot be parsed |
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
pub use negotiated::{BASE_ALLOCATION, MetaContext};
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
