//! What this crate asks of the kernel of Linux, and sets.

pub(crate) mod apply;
mod interface;
mod limits;
mod sys;
mod tcp_info;
