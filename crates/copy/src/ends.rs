//! Sources and destinations of a copy.

pub(crate) mod destination;
pub(crate) mod file;
pub(crate) mod identity;
mod mark;
pub(crate) mod nbd;
mod pipe;
pub(crate) mod source;
mod window;
