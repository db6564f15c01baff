//! Copies a disk image to an iSCSI unit, back, or from unit to unit.
//!
//! The program is a thin `main` around [`run`], so that other programs and the tests can call it.
//!
//! | module | contents |
//! |---|---|
//! | [`args`], [`location`], [`side`] | the command line |
//! | [`end`] | files, streams and units, as sources and destinations of [`iscsi_copy`], which copies |
//! | `claims`, `named_files` | checks that no copy interferes with another copy, and that no file has two uses |
//! | `content`, `job/guard.rs`, `refusal` | recognises data on source and destination, and refuses to copy or overwrite them |
//! | `shell` | commands that the user's options name |
//! | `classes`, `handle`, `orders`, `control` | the rate, and commands on a socket that change it during a copy |
//! | `sharing`, `clients`, `keeper`, `shared_class` | traffic classes of one process, the keeper, for other processes |
//! | [`plan`] | the chosen numbers and their reasons |
//! | [`meter`], [`activity`], [`standing`], [`progress`], `bar_line`, `heading`, `shortened` | the shown progress |
//! | [`passes`], [`reach`], [`report`] | the report, as readable text and as JSON |
#![forbid(unsafe_code)]

pub mod activity;
pub mod args;
mod bar_line;
mod claims;
pub mod classes;
mod clients;
mod content;
mod control;
pub mod end;
mod ends;
pub mod error;
mod exclusive;
mod failure;
mod handle;
mod heading;
mod job;
mod job_file;
mod jobs;
mod json_lines;
mod keeper;
mod lines;
pub mod location;
mod manual;
pub mod meter;
mod named_files;
mod observation;
mod orders;
mod own_limits;
pub mod passes;
pub mod plan;
pub mod progress;
mod ranges;
pub mod reach;
mod refusal;
pub mod report;
pub mod sentence;
mod shared_class;
mod sharing;
mod shell;
mod shortened;
pub mod side;
mod span;
pub mod standing;
mod terminal;

pub use args::Args;
pub use error::Error;
pub use failure::Failure;
pub use iscsi_examples_common::{command_line, log, output, standard_output, stop};
pub use job::{Verified, run, verify};
pub use jobs::{JobResult, JobsArgs, run_jobs};
pub use refusal::Refusal;
pub use report::{Links, Report};
pub use stop::Stop;
