//! Several devices as one: a [`Volume`] lays its bytes out over iSCSI units, or whatever else is a
//! [`Device`](device::Device), in the way of RAID-0. Each unit may have a separate link, and the
//! links carry data concurrently.
//!
//! A `Description` is the text file that says which units in which order (feature `iscsi`, on by default). With the [metadata](md) of Linux md on the
//! units, the kernel of another host assembles the same bytes to the same device.
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
mod untold;
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
