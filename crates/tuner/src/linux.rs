//! Queries the Linux kernel, and sets the socket options of a plan.

pub(crate) mod apply;
mod interface;
mod limits;
mod sys;
mod tcp_info;
