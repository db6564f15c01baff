//! What the example programs have in common.
//!
//! | room | what is in it |
//! |---|---|
//! | [`output`] | standard output |
//! | [`size`] | numbers of bytes, as people write them |
//! | [`stop`] | the wish to stop early, and the signals that express it |
#![forbid(unsafe_code)]

pub mod output;
pub mod size;
pub mod stop;
