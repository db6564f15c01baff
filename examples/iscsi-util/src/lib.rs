//! Asks iSCSI targets and their units what they are, how far away, and how fast.
//!
//! The program is a thin `main` around [`run`], so that other programs and the tests can call it.
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | the command line |
//! | [`discover`], [`luns`], [`inquiry`], [`capacity`], [`extents`] | commands that show targets and units |
//! | [`ping`], [`perf`] | commands that measure |
//! | [`discard`], [`reservations`], [`mod@reserve`], [`port_groups`], [`volume`] | other commands |
//! | [`connector`] | opening and closing of sessions, and finding units |
//! | [`report`], [`table`] | the output, as readable text and as JSON |
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
pub mod volume;

pub use answer::run;
pub use args::Args;
pub use error::Error;
pub use iscsi_examples_common::{command_line, log, output, stop};
pub use report::Report;
pub use stop::Stop;
