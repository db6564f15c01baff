//! Requests of a disk, from their submission to their answer.

pub(crate) mod confirmation;
pub(crate) mod execute;
pub(crate) mod flush;
pub(crate) mod inbox;
pub(crate) mod outputs;
pub(crate) mod report;
pub(crate) mod request;
