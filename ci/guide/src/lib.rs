//! The pages of `docs/guide`, as the tests of this crate read and run them.
//!
//! | module | what is in it |
//! |---|---|
//! | [`messages`] | the page of all messages, which is generated from the source code |
//! | [`page`] | a page as steps: each command with the output that the page shows |
//! | [`expect`] | compares the output on a page with the output of a command |
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
