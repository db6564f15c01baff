//! Models the link: from the kernel's reports on a connection, and from measurements.

pub(crate) mod estimator;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod rtt;
pub(crate) mod tcp_info;
