//! Defines the events of a disk, and what a disk waits for.
//!
//! Design: `docs/design/events.md`.

pub(crate) mod disk_event;
pub(crate) mod disk_events;
pub(crate) mod publisher;
pub(crate) mod waiting;
