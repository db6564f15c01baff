//! A sans-IO iSCSI target: bytes in, bytes out, no clock, no socket.
//!
//! ```text
//! accept ──► ConnId        receive(id, bytes) ──► transmit(id) until it is empty
//! advance(now) ──► deadline(id)      where a fault delays answers
//!                          is_closed(id) ──► close the stream      disconnected(id) after a failure
//! ```
//! Every PDU of both sides passes through the [`Checker`](crate::checker::Checker); the rules that the
//! initiator broke are in [`Target::violations`].

mod attention;
mod chap;
mod command;
mod connection;
mod delay;
mod faults;
mod late;
mod login;
mod logout;
mod management;
mod node;
mod nop;
mod other_nexus;
mod other_port;
mod outbox;
mod params;
mod read;
mod reservation;
mod send;
mod session;
mod tally;
mod task;
mod text;
mod write;

pub use crate::conn_id::ConnId;
pub use node::{CommandRecord, Target};
pub use task::Outcome;
