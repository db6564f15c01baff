//! What the example programs have in common.
//!
//! | room | what is in it |
//! |---|---|
//! | [`command_line`] | what the command line says, or that it is wrong |
//! | [`failure`] | how a failure is told to programs |
//! | [`log`] | what the crates below have to tell |
//! | [`output`] | standard output and standard error |
//! | [`stop`] | the wish to stop early, and the signals that express it |
#![forbid(unsafe_code)]

pub mod command_line;
pub mod failure;
pub mod log;
pub mod output;
pub mod stop;
