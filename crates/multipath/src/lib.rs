//! What is known of one logical unit over all iSCSI sessions that lead to it, and what follows from it.
//!
//! The crate has no socket, clock, lock, runtime or randomness: events and `now` are arguments, and
//! decisions are returned. Each part of the knowledge has one owner, a plain structure whose methods take `&mut self`.
#![forbid(unsafe_code)]

mod access;
mod idle_poll;
mod ids;
pub mod port_groups;
pub mod reconnect;
mod review_pace;
pub mod topology;

pub use access::{Access, Priority};
pub use idle_poll::IdlePoll;
pub use ids::{PathId, PortalId};
pub use review_pace::ReviewPace;
