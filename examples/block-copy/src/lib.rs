//! Copies a disk image to an iSCSI unit, back, or from unit to unit.
//!
//! The program is a thin `main` around [`run`], so that other programs and the tests can call it.
//!
//! | module | contents |
//! |---|---|
//! | [`args`], [`location`], [`side`] | the command line |
//! | [`end`], `ends` | files, streams and units, as sources and destinations of [`iscsi_copy`], which copies |
//! | `claims` | checks that no copy interferes with another copy, and that no file has two uses |
//! | `content`, `job/guard.rs`, `error/refusal.rs` | recognises data on source and destination, and refuses to copy or overwrite them |
//! | `job`, `jobs` | one copy from beginning to end; many of them concurrently |
//! | `shell` | commands that the user's options name |
//! | [`classes`] | the rates of copies, also of other processes |
//! | `control` | commands on a socket that change a copy while it runs |
//! | [`metrics`] | the page of metrics, for controllers and for Prometheus |
//! | [`plan`] | the chosen numbers and their reasons |
//! | [`progress`] | the shown progress: `meter.rs` measures it, `status.rs` has its words, `bar_line.rs` its line on a terminal |
//! | [`report`] | the report, as readable text and as JSON |
#![forbid(unsafe_code)]

pub mod args;
mod claims;
pub mod classes;
mod content;
mod control;
pub mod end;
mod ends;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod job;
mod jobs;
pub mod location;
mod manual;
pub mod metrics;
pub mod plan;
pub mod progress;
pub mod report;
mod shell;
pub mod side;

pub use args::Args;
pub use error::Error;
pub use error::failure::Failure;
pub use error::refusal::Refusal;
pub use iscsi_examples_common::{command_line, log, output, standard_output, stop};
pub use job::{Verified, run, verify};
pub use jobs::{JobResult, JobsArgs, run_jobs};
pub use report::{Links, Report};
pub use stop::Stop;
