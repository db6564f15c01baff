//! Code that the example programs share.
//!
//! | module | contents |
//! |---|---|
//! | [`amounts`] | sizes in sentences that compare them, and the length of a range |
//! | [`command_line`] | the command line, and the error if it is wrong |
//! | [`help`] | headings of options, examples, other texts of the manual page |
//! | [`exit_status`] | the exit status of an error: whether the same command may succeed later |
//! | [`failure`] | the kind of a failure, and the failure as JSON |
//! | [`host_lock`] | locks, so that two processes of this host do not work on the same file or unit |
//! | `manual` | the manual page, and completions for shells |
//! | [`log`] | the log of the libraries |
//! | [`metrics`] | a page of metrics, served over HTTP |
//! | [`named_socket`] | a socket in the file system that is removed when its process ends |
//! | [`named_units`] | a check that the names of numbers in JSON objects end with their units |
//! | [`output`] | standard output and standard error |
//! | [`credentials`], [`password_file`] | the password of each unit; the file that it is read from |
//! | [`boxed`] | futures that are compiled in the crate that makes them |
//! | [`place`], [`volume`] | the initiator; a unit to open, or a volume of several units and the file that describes it |
//! | [`program`] | the start, the work and the exit status of a program |
//! | [`sentence`] | the message of an error: the fact, and what the reader can do |
//! | [`session_count`] | the number of sessions of a unit |
//! | [`standard_output`] | recognises standard output under its other names |
//! | [`stop`] | requests to stop early, and the signals that make them |
//! | [`termination_log`] | the file in which a controller finds the result |
//! | [`time`] | times on the command line |
#![forbid(unsafe_code)]

pub mod amounts;
pub mod boxed;
pub mod command_line;
pub mod credentials;
pub mod exit_status;
pub mod failure;
pub mod help;
pub mod host_lock;
pub mod log;
mod manual;
pub mod metrics;
pub mod named_socket;
pub mod named_units;
pub mod output;
pub mod password_file;
pub mod place;
pub mod program;
pub mod sentence;
pub mod session_count;
pub mod standard_output;
pub mod stop;
pub mod termination_log;
pub mod time;
pub mod volume;
