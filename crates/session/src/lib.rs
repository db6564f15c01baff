//! An iSCSI session without IO (RFC 7143): bytes, events and time go in; bytes and outputs come
//! out.
//!
//! The crate has no socket, no clock, no runtime and no randomness of its own. A driver owns a
//! [`Session`], the transport connections it asks for, and a clock, and keeps one rule:
//!
//! > After any call that takes `&mut self` and `now`, drain [`Session::poll_output`], then
//! > [`Session::poll_transmit`] for each connection, before waiting.
//!
//! With several connections, poll them in turn until none has anything to send that its socket takes:
//! each takes its share of the commands when it is polled.
//!
//! | what happened | call |
//! |---|---|
//! | a transport connection stands, failed, or ended | [`Session::handle_connected`], [`Session::handle_disconnected`] |
//! | bytes were read into [`Session::receive_slices`] | [`Session::handle_received`] |
//! | the time of [`Session::poll_timeout`] has come | [`Session::handle_timeout`] |
//! | the application wants something | [`Session::submit`], [`Session::abort`], [`Session::manage`], [`Session::send_targets`], [`Session::ping`], [`Session::logout`] |
//! | a connection more or less is wanted | [`Session::add_connection`], [`Session::drop_connection`] |
//!
//! Sequence numbers are stamped when a PDU is put in wire order, never before, so nothing that is
//! taken back earlier leaves a hole in CmdSN. Write data goes out from the caller's own pages and
//! read data lands in the caller's own buffer; the crate copies only what was read ahead.
//!
//! Every task ends exactly once, in one [`Output`]; status GOOD is passed on only if the bytes it
//! vouches for have moved.
//!
//! A session of several connections outlives all but the last of them
//! ([`Output::ConnectionLost`]). The target is made to log the lost one out; then commands that it had
//! not counted start over on another connection, and the others end, for they may have been executed.
//!
//! # Where things are
//!
//! | file | holds |
//! |---|---|
//! | `session.rs`, `session/` | [`Session`]: the calls above, its life, its connections and their loss |
//! | `connection/` | one connection: its states, its bytes, its StatSNs, what goes out next on it |
//! | `transmit/` | each kind of PDU on its way out, one file each |
//! | `receive/` | what each PDU of the target means, one file each |
//! | `login/` | the login phase: stages, negotiation, CHAP |
//! | `config.rs`, `chap.rs`, `entropy.rs` | what a session is given: settings, secrets, random bytes |
//! | `task/` | commands that wait or are in flight, and their transfers |
//! | `window.rs`, `state.rs`, `timer.rs` | the command window, the states of a session, what time limits are for |
//! | `waiting.rs` | what a session without bytes to send waits for |
//! | `reopening.rs` | when a session that has ended may be opened anew |
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]
#![warn(clippy::iter_over_hash_type)]

mod chap;
mod config;
mod connection;
mod discovery;
mod entropy;
mod error;
mod login;
mod output;
mod params;
mod receive;
mod reopening;
mod session;
mod state;
mod stats;
mod task;
mod timer;
mod transmit;
mod waiting;
mod window;

pub use chap::{IssuedChallenges, Secret};
pub use config::{Chap, Config, DigestOffer, Offer, SessionKind, TargetCredentials, Timeouts};
pub use connection::transmit::Transmit;
pub use discovery::{DiscoveredTarget, decode_send_targets};
pub use entropy::Entropy;
pub use error::{ProtocolError, SessionError, SubmitError, TaskError, TransportError};
pub use iscsi_pdu::keys::{ChapAlgorithm, UnknownChapAlgorithm};
pub use login::{AuthenticationError, LoginError, LoginViolation, NegotiationFault};
pub use output::{Notice, Output};
pub use params::Negotiated;
pub use reopening::Reopening;
pub use session::Session;
pub use stats::Stats;
pub use task::command::{Command, Completion};
pub use task::payload::Payload;
pub use timer::Timer;
pub use waiting::Waiting;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
