//! Tracks the state of one logical unit over all iSCSI sessions that lead to it, and makes the decisions that
//! follow from this state.
//!
//! The crate has no socket, clock, lock, runtime or randomness: events and `now` are arguments, and decisions
//! are returned. Each part of the state is a plain structure whose methods take `&mut self`. It is meant for
//! `iscsi-initiator`, which keeps these parts under one lock and executes their decisions, and for code that
//! checks them: [`machine::Machine`] combines all parts to one value that a model of targets can run.
//!
//! | owner | decides |
//! |---|---|
//! | [`Requests`](requests::Requests) | which path a request takes, when it is hedged, and what follows from the end of an attempt |
//! | `PathSelector`, in [`paths`] | which path has credit, and which is the best one |
//! | [`Ranges`](ranges::Ranges) | which writes may be in flight together |
//! | [`Durability`] | which writes are on the medium, and which are lost |
//! | [`Identity`] | whether all paths still lead to the same unit, and what must be asked before data counts |
//! | [`Unit`] | what the end of a command reports of the unit |
//! | [`Fencing`](fencing::Fencing) | whether the paths are registered with the reservation key |
//! | [`PortGroups`](port_groups::PortGroups) | which ports serve the unit (ALUA) |
//! | [`Topology`](topology::Topology), [`Reconnect`](reconnect::Reconnect) | which sessions there should be, and when a lost one comes back |
//!
//! Two writes to the same blocks are never in flight together; a write of a lost session keeps its range until
//! the session is settled:
//!
//! ```
//! use iscsi_multipath::ranges::Ranges;
//!
//! let mut ranges = Ranges::default();
//! let first = ranges.try_take(&(0..4096)).unwrap();
//! let (second, is_taken) = ranges.take(2048..8192);
//! assert!(!is_taken);
//! // The session of the first write is lost: the target may still execute the write.
//! ranges.doubt(first);
//! assert!(ranges.release(first).is_empty());
//! // A login has made the target drop the old session.
//! assert_eq!(ranges.settle(first), [second]);
//! ```
#![forbid(unsafe_code)]

mod access;
mod by_path;
mod commands;
mod durability;
pub mod fencing;
mod identity;
mod idle_poll;
mod ids;
pub mod machine;
pub mod paths;
pub mod port_groups;
pub mod ranges;
pub mod reconnect;
pub mod requests;
mod review_pace;
mod slab;
pub mod topology;
mod unit;

pub use access::{Access, Priority};
pub use commands::CommandNumber;
pub use durability::flushing;
pub use durability::{Durability, Epoch, Flush, FlushEstimate, FlushRank, LossCount, WitnessRank};
pub use identity::revalidating;
pub use identity::{
    Answers, BlockError, Blocks, Capacity, Identity, KnownUnit, Mismatch, Model, Pages, Profile,
    RangeError, Reasons, Resized, SharedReasons, SizeQuestion, Transitions, UnitAddress, UnitName,
    UnknownCommands, Unproven, Verdict, check_block_size, max_transfer, short_capacity,
    short_capacity_now, unmapped_reads_zeros,
};
pub use idle_poll::IdlePoll;
pub use ids::{PathId, PortalId};
pub use review_pace::ReviewPace;
pub use unit::{
    Begun, CommandEnd, CommandFacts, Effects, GoodEnd, Reported, Unit, is_write_failure,
    may_be_another_unit,
};
