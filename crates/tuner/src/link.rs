//! The link: what the kernel tells of a connection over it, what is measured, and what follows.

pub(crate) mod estimator;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod rtt;
pub(crate) mod tcp_info;
