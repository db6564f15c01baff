//! Serves an iSCSI unit to NBD clients.
#![forbid(unsafe_code)]

pub mod cache;
pub mod write_behind;
