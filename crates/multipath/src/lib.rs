//! Tracks the state of one logical unit over all iSCSI sessions that lead to it, and makes the decisions that
//! follow from this state.
//!
//! The crate has no socket, clock, lock, runtime or randomness: events and `now` are arguments, and decisions
//! are returned. Each part of the state is a plain structure whose methods take `&mut self`.
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
    UnknownForms, Unproven, Verdict, check_block_size, max_transfer, short_capacity,
    short_capacity_now, unmapped_reads_zeros,
};
pub use idle_poll::IdlePoll;
pub use ids::{PathId, PortalId};
pub use review_pace::ReviewPace;
pub use unit::{
    Begun, CommandEnd, CommandFacts, Effects, GoodEnd, Reported, Unit, is_write_failure,
    may_be_another_unit,
};
