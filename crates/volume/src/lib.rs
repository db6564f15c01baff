//! Several devices as one: a [`Volume`] distributes its bytes over iSCSI units, or other
//! [`Device`](device::Device)s, as RAID-0 does. Each unit may have a separate link, and the links carry data
//! concurrently.
//!
//! A `Description` is the text file that lists the units in their order (feature `iscsi`, on by default).
//! With the [metadata](md) of Linux md on the units, the kernel of another host can assemble the units to a
//! device with the same data.
#![forbid(unsafe_code)]

mod advice;
#[cfg(feature = "iscsi")]
mod description;
mod error;
mod extents;
mod join;
pub mod md;
mod member;
mod refusal;
mod stripe;
#[cfg(feature = "iscsi")]
mod units;
mod unreported;
mod volume;
mod whole_buffer;

pub use advice::Advice;
#[cfg(feature = "iscsi")]
pub use description::{Description, MemberDescription};
pub use error::Error;
pub use iscsi_block_device as device;
pub use member::Member;
pub use stripe::{Chunk, MAX_MEMBERS, Piece, Stripe};
#[cfg(feature = "iscsi")]
pub use units::{Units, unit_name};
pub use volume::Volume;

/// Compiles the example of the README.
#[cfg(all(doctest, feature = "iscsi"))]
#[doc = include_str!("../README.md")]
struct Readme;
