//! What a disk reports: its events, and what it waits for.
//!
//! Why it is so: `docs/design/events.md`.

pub(crate) mod disk_event;
pub(crate) mod disk_events;
pub(crate) mod publisher;
pub(crate) mod waiting;
