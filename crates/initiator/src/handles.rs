//! Defines the handles that a program uses: an initiator opens disks and sessions, a disk reads and writes
//! bytes.

pub(crate) mod disk;
pub(crate) mod initiator;
mod opening;
