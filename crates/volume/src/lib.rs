//! Several devices as one: a [`Volume`] distributes its bytes over iSCSI units, or other
//! [`Device`](device::Device)s, as RAID-0 does. Each unit may have a separate link, and the links carry data
//! concurrently.
//!
//! ```
//! use bytes::Bytes;
//! use iscsi_volume::device::Device;
//! use iscsi_volume::{Chunk, Member, Volume};
//!
//! /// Makes a volume of two devices of any kind: chunks of 64 KiB lie on them in turn.
//! async fn store(one: impl Device, two: impl Device) -> Result<(), Box<dyn std::error::Error>> {
//!     let members: Vec<Member<Box<dyn Device>>> =
//!         vec![Member::new("one", Box::new(one)), Member::new("two", Box::new(two))];
//!     let volume = Volume::new(Chunk::new(64 << 10)?, members)?;
//!     volume.write_at(0, vec![Bytes::from_static(b"across all devices")]).await?;
//!     volume.flush().await?;
//!     Ok(())
//! }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Volume`] | the volume, itself a [`Device`](device::Device) |
//! | [`Member`] | one of its devices, with the name that errors call it by |
//! | [`Stripe`], [`Chunk`], [`Piece`] | which byte of the volume lies where |
//! | `Description`, `MemberDescription` | the text file of a volume, and what it says of each unit |
//! | `Units` | opens the units of a volume by their URLs |
//! | [`md`] | superblocks of Linux md |
//! | [`Error`], [`Advice`] | why there is no volume, and what to do |
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
