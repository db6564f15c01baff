//! Several devices as one: a [`Volume`] lays its bytes out over iSCSI units, or whatever else is a
//! [`Device`](iscsi_initiator::device::Device), in the way of RAID-0. Each unit may have a separate link, and the
//! links carry data concurrently.
//!
//! A [`Description`] is the text file that says which units in which order. With the [metadata](md) of Linux md on the
//! units, the kernel of another host assembles the same bytes to the same device.
#![forbid(unsafe_code)]

mod advice;
mod description;
mod error;
mod extents;
mod join;
pub mod md;
mod member;
mod stripe;
mod units;
mod untold;
mod volume;
mod whole_buffer;

pub use advice::Advice;
pub use description::{Description, MemberDescription};
pub use error::Error;
pub use member::{Member, unit_name};
pub use stripe::{Chunk, MAX_MEMBERS, Piece, Stripe};
pub use units::Units;
pub use volume::Volume;
