//! Code that the example programs share.
//!
//! | room | what is in it |
//! |---|---|
//! | [`amounts`] | amounts of bytes in sentences, and the length of a range |
//! | [`command_line`] | what the command line says, or that it is wrong |
//! | [`help`] | headings of options, examples, what the manual page says beside them |
//! | [`failure`] | how a failure is reported to programs |
//! | [`host_lock`] | that two processes of this host do not work on one thing |
//! | `manual` | the manual page, and what shells need to complete the command line |
//! | [`log`] | what the crates below have to tell |
//! | [`named_socket`] | a socket in the file system, which goes with its process |
//! | [`named_units`] | whether the numbers for programs say their units |
//! | [`output`] | standard output and standard error |
//! | [`credentials`], [`password_file`] | which unit gets which password; the file that one is read from |
//! | [`boxed`] | futures that are compiled where they are made |
//! | [`place`], [`volume`] | what is opened: a unit, or several as one device by the file that describes them |
//! | [`program`] | a program from its first word to its exit status |
//! | [`sentence`] | what a program prints of an error: the fact, and what its reader can do |
//! | [`session_count`] | how many sessions a unit shall have |
//! | [`standard_output`] | standard output under its other names |
//! | [`stop`] | the wish to stop early, and the signals that express it |
//! | [`time`] | times on the command line |
//! | [`mod@unit`] | the unit that the command line names, and who opens it |
#![forbid(unsafe_code)]

pub mod amounts;
pub mod boxed;
pub mod command_line;
pub mod credentials;
pub mod failure;
pub mod help;
pub mod host_lock;
pub mod log;
mod manual;
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
pub mod time;
pub mod unit;
pub mod volume;
