//! Measures the link to an iSCSI target and explains it. Writes nothing.
//!
//! The program is a thin `main` around [`run`], so that other programs and the tests can call it.
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | the command line |
//! | [`doctor`](run) | an examination: connect, check the path, ping, read, calculate, close |
//! | [`ping`], [`read_test`] | the measurements |
//! | [`path`] | the check whether full packets arrive |
//! | [`facts`], [`agreed`], [`mod@unit`] | the known facts |
//! | [`verdict`] | what held the reads back |
//! | [`ceiling`], [`writes`], [`lio`] | the rates that writes could reach, and the settings that raise them |
//! | [`report`], [`table`] | the output, as readable text and as JSON |
#![forbid(unsafe_code)]

pub mod agreed;
pub mod args;
pub mod ceiling;
mod doctor;
pub mod error;
pub mod facts;
pub mod lio;
mod manual;
pub mod path;
pub mod ping;
mod progress;
pub mod read_test;
pub mod report;
pub mod table;
pub mod unit;
pub mod verdict;
pub mod writes;

pub use args::Args;
pub use doctor::run;
pub use error::Error;
pub use iscsi_examples_common::{command_line, log, output, stop};
pub use report::Report;
pub use stop::Stop;
