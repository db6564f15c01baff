//! The pages of `docs/guide`, as the test beside this library reads and runs them.
//!
//! | module | what is in it |
//! |---|---|
//! | [`messages`] | the page of all messages, which is written from the source code |
//! | [`page`] | a page as steps: each command with the output that the page shows |
//! | [`expect`] | compares what a page shows with what a command printed |
//! | [`invocation`] | the programs that a line of shell starts, with their arguments |
//! | [`text`] | links, headings and options in the text between the blocks |
//!
//! How to write a block: see [`page`].
#![forbid(unsafe_code)]

pub mod expect;
pub mod invocation;
pub mod messages;
pub mod page;
pub mod text;
