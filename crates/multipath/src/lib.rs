//! What is known of one logical unit over all iSCSI sessions that lead to it, and what follows from it.
//!
//! The crate has no socket, clock, lock, runtime or randomness: events and `now` are arguments, and
//! decisions are returned. Each part of the knowledge has one owner, a plain structure whose methods take `&mut self`.
#![forbid(unsafe_code)]

pub mod fencing;
mod ids;
pub mod paths;
pub mod ranges;
pub mod requests;
mod slab;

pub use ids::PathId;
