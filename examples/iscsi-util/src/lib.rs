//! Asks iSCSI targets and their units what they are, how far they are and how fast.
//!
//! The program is a thin `main` around [`run`], so that other programs and the tests can call it.
//!
//! | room | what is in it |
//! |---|---|
//! | [`args`] | what the command line says |
//! | [`discover`], [`luns`], [`inquiry`], [`capacity`], [`extents`], [`discard`], [`ping`], [`perf`], [`reservations`], [`mod@reserve`], [`port_groups`], [`volume`] | a subcommand each: its options, what it does, what it tells |
//! | [`connector`], [`mod@unit`] | sessions and units, opened and closed |
//! | [`report`], [`table`] | what people and programs get to see |
#![forbid(unsafe_code)]

mod answer;
pub mod args;
pub mod capacity;
pub mod connector;
pub mod discard;
pub mod discover;
pub mod error;
pub mod extents;
pub mod inquiry;
pub mod luns;
mod manual;
pub mod perf;
pub mod ping;
pub mod port_groups;
pub mod report;
pub mod reservations;
pub mod reserve;
pub mod table;
pub mod unit;
pub mod volume;

pub use answer::run;
pub use args::Args;
pub use error::Error;
pub use iscsi_examples_common::{command_line, log, output, stop};
pub use report::Report;
pub use stop::Stop;
