//! The link: reports of the kernel on a connection, measurements, and the model that follows from them.

pub(crate) mod estimator;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod rtt;
pub(crate) mod tcp_info;
