//! What a disk reports: its events, and what it waits for.

pub(crate) mod disk_event;
pub(crate) mod disk_events;
pub(crate) mod publisher;
pub(crate) mod waiting;
