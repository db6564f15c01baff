//! The ends of a copy: where bytes come from and go to.

pub(crate) mod destination;
pub(crate) mod file;
pub(crate) mod identity;
mod mark;
pub(crate) mod nbd;
mod pipe;
pub(crate) mod source;
mod window;
