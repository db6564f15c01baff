//! Questions to the Linux kernel, and the socket options that this crate sets.

pub(crate) mod apply;
mod interface;
mod limits;
mod sys;
mod tcp_info;
