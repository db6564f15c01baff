//! An iSCSI session without I/O (RFC 7143). The driver passes bytes, events and the time; the session returns
//! bytes and outputs.
//!
//! The crate has no socket, clock, runtime or randomness. A driver owns a [`Session`], the
//! transport connections it asks for, and a clock, and keeps one rule:
//!
//! > After any call that takes `&mut self` and `now`, drain [`Session::poll_output`], then
//! > [`Session::poll_transmit`] for each connection, before waiting.
//!
//! With several connections, poll them in turn until none has anything to send that its socket takes: a
//! connection takes its share of the commands when it is polled.
//!
//! | what happened | call |
//! |---|---|
//! | a transport connection was made, failed, or ended | [`Session::handle_connected`], [`Session::handle_disconnected`] |
//! | bytes were read into [`Session::receive_slices`] | [`Session::handle_received`] |
//! | the time of [`Session::poll_timeout`] has come | [`Session::handle_timeout`] |
//! | the application has a request | [`Session::submit`], [`Session::abort`], [`Session::manage`], [`Session::send_targets`], [`Session::ping`], [`Session::logout`] |
//! | a connection is to be added or dropped | [`Session::add_connection`], [`Session::drop_connection`] |
//!
//! Sequence numbers are assigned when a PDU is put in wire order, never before, so a command that is
//! withdrawn earlier leaves no gap in CmdSN. Write data is sent from the caller's own pages, and read data is
//! stored in the caller's own buffer; the crate copies only what was read ahead.
//!
//! Every task ends exactly once, in one [`Output`]. Status GOOD is passed on only if the bytes that it covers
//! were transferred.
//!
//! A session survives the loss of all but the last of its connections ([`Output::ConnectionLost`]). It logs a
//! lost connection out over another one. Then commands that the target had not counted are sent again on
//! another connection. The other commands end with an error, because they may have been executed.
//!
//! This example logs in and reads from a target in memory; a driver moves the bytes over a socket instead:
//!
//! ```
//! use std::time::Instant;
//!
//! use bytes::{Buf, BytesMut};
//! use iscsi_pdu::scsi::{Cdb, Lun};
//! use iscsi_pdu::{Cid, IscsiName, Isid};
//! use iscsi_session::{Command, Config, Output, Session, SessionKind};
//! # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, target::Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let disk = RamDisk::holding(512, &[7; 512]);
//! # let mut target = Target::new(TargetConfig::new("iqn.2026-01.org.example:disk", disk));
//! # let link = target.accept();
//! let name = IscsiName::parse("iqn.2026-01.org.example:host")?;
//! let target_name = IscsiName::parse("iqn.2026-01.org.example:disk")?;
//! let isid = Isid::random([1, 2, 3], 0);
//! let config = Config::new(name, isid, SessionKind::Normal { target_name });
//! // The source of challenges: only CHAP wants one.
//! let entropy = |bytes: &mut [u8]| bytes.fill(0);
//! let now = Instant::now();
//! let mut session = Session::new(config, entropy, now);
//! let read = Command::new(Lun::ZERO, Cdb::read_10(0, 1)).with_read(BytesMut::zeroed(512));
//! session.submit(read, now)?;
//!
//! let mut leading = Cid(0);
//! let answer = 'session: loop {
//!     while let Some(output) = session.poll_output() {
//!         match output {
//!             Output::Connect { cid, .. } => {
//!                 leading = cid;
//!                 session.handle_connected(cid, now);
//!             }
//!             Output::Completed { result, .. } => break 'session result?,
//!             Output::Ended(result) => return Ok(result?),
//!             _ => {}
//!         }
//!     }
//!     while let Some(mut bytes) = session.poll_transmit(leading, now) {
//!         target.receive(link, &bytes.copy_to_bytes(bytes.remaining()));
//!     }
//!     let mut bytes = target.transmit(link);
//!     while bytes.has_remaining() {
//!         let mut filled = 0;
//!         for slice in &mut session.receive_slices(leading) {
//!             let len = slice.len().min(bytes.remaining());
//!             bytes.copy_to_slice(&mut slice[..len]);
//!             filled += len;
//!         }
//!         session.handle_received(leading, filled, now);
//!     }
//! };
//! assert_eq!(answer.data, [7; 512][..]);
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! | file | holds |
//! |---|---|
//! | `session.rs`, `session/` | [`Session`]: the calls above, its life, its connections and their loss |
//! | `connection/` | one connection: its states, its bytes, its StatSNs, what is sent next on it |
//! | `transmit/` | sending of each kind of PDU, one file each |
//! | `receive/` | handling of each PDU of the target, one file each |
//! | `login/` | the login phase: stages, negotiation, CHAP |
//! | `config.rs`, `chap.rs`, `entropy.rs` | inputs of a session: settings, secrets, random bytes |
//! | `task/` | commands that wait or are in flight, and their transfers |
//! | `window.rs`, `state.rs`, `timer.rs` | the command window, the states of a session, the kinds of time limits |
//! | `waiting.rs` | what a session without bytes to send waits for |
//! | `reopening.rs` | when the caller may reconnect after a session has ended |
//! | `short_queue.rs` | a queue that mostly holds one element |
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
mod short_queue;
mod state;
mod stats;
mod task;
mod timer;
mod transmit;
mod waiting;
mod window;

pub use chap::{IssuedChallenges, Secret};
pub use config::{Chap, Config, DigestOffer, Offer, SessionKind, TargetCredentials, Timeouts};
pub use connection::read_ahead::ReadAhead;
pub use connection::transmit::Transmit;
pub use discovery::{DiscoveredTarget, decode_send_targets};
pub use entropy::Entropy;
pub use error::{ProtocolError, SessionError, SubmitError, TaskError, TransportError};
pub use iscsi_block_device::BufferPool;
pub use iscsi_pdu::keys::{ChapAlgorithm, UnknownChapAlgorithm};
pub use login::{AuthenticationError, LoginError, LoginViolation, NegotiationFault};
pub use output::{Notice, Output};
pub use params::Negotiated;
pub use reopening::Reopening;
pub use session::Session;
pub use stats::Stats;
pub use task::command::{Command, Completion};
pub use task::payload::Payload;
pub use task::read_buffer::ReadBuffer;
pub use timer::Timer;
pub use waiting::Waiting;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
