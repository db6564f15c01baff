//! Copies disks: between iSCSI units, files, block devices, streams, and anything else that implements
//! [`Device`].
//!
//! ```
//! use iscsi_copy::{CopyJob, Destination, FileDevice, Source};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("iscsi-copy-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let (image, backup) = (folder.join("image"), folder.join("backup"));
//! # std::fs::write(&image, vec![7; 100_000])?;
//! let source = Source::device(FileDevice::open(&image)?);
//! let destination = Destination::file(FileDevice::create(&backup)?);
//! let copied = CopyJob::new(source, destination).run().await?;
//! assert_eq!(copied.progress.flushed, 100_000);
//! # assert_eq!(std::fs::read(&backup)?, std::fs::read(&image)?);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//! A `Disk` of `iscsi-initiator` is a device: `Source::device(disk)`, `Destination::device(disk)`.
//!
//! | to | use |
//! |---|---|
//! | resume a copy that stopped early | [`CopyJob::resume_from`] |
//! | limit the rate, pause, cancel | [`CopyJob::control`] |
//! | show progress | [`CopyJob::events`], [`Control::progress`] |
//! | send only blocks that differ from the last copy | [`CopyOptions::with_digests`] |
//! | compare afterwards | [`Verify`] |
//! | copy a source that is in use | [`Passes`] |
//! | copy to or from something else | a [device of your own](#devices-of-your-own) |
//!
//! `examples/managed.rs` combines resume, rate, progress and cancel.
//!
//! # Devices of your own
//!
//! Anything that implements [`Device`] can be a source or a destination. Five methods are required. The
//! others have defaults that are safe and slow, or that report that the device lacks the ability.
//!
//! | subject | what the device must do |
//! |---|---|
//! | requests | accept any offset and length on the device; [`limits`](Device::limits) only tells which ones are cheap. Refuse a range beyond the end with `InvalidInput` |
//! | concurrency | accept many calls at the same time, up to [`queue_depth`](Device::queue_depth) (default: 1) and a few more. They have no order, but a request that begins after the end of a write sees its data |
//! | dropped futures | a write may be executed in part or not at all, but never after a later write to the same bytes |
//! | blocking calls | run them on threads that may block (`tokio::task::spawn_blocking`): on a thread of the runtime they would delay all other requests |
//! | flush | return when every write that had ended before is on the medium. Set [`has_volatile_cache`](device::DeviceLimits::has_volatile_cache) if writes end before that |
//! | lost writes | if unflushed writes may be lost, let the next flush fail with the kind [`LostWrites`](device::DeviceErrorKind::LostWrites): the copy repeats them. Each handle must get that error once. Any other error ends the copy, and its checkpoint records what the last successful flush has covered. Never let a flush succeed after a lost write |
//! | size | return the capacity in bytes. The copy uses the capacity at its beginning; a read beyond the end must fail with `UnexpectedEnd` or `InvalidInput`, not return less |
//! | alignment | set `block_size` if other requests cost a read: the copy then sends whole blocks, except at the end |
//! | extents | the default reports data everywhere, so that everything is read. Report [`Deallocated`](device::ExtentState::Deallocated) only for bytes that read as zeros |
//! | zeros | the default writes zeros as data. Override [`write_zeroes`](Device::write_zeroes) and set `has_fast_zeroes` together |
//! | identity | return a [`name`](Device::name) by which a later process recognizes the device, for [`CopyJob::resume_from`]; or set one with [`Source::with_identity`], [`Destination::with_identity`] |
//!
//! ```
//! use std::sync::{Arc, RwLock};
//!
//! use bytes::{Bytes, BytesMut};
//! use iscsi_copy::device::{DeviceFuture, DeviceResult, check_range};
//! use iscsi_copy::{CopyJob, Destination, Device, Source};
//!
//! /// A device in memory. Clones are the same device.
//! #[derive(Clone, Debug)]
//! struct Memory(Arc<RwLock<Vec<u8>>>);
//!
//! impl Memory {
//!     /// Where a request lies, if the device has all of it.
//!     fn range(&self, offset: u64, len: usize) -> DeviceResult<std::ops::Range<usize>> {
//!         let range = check_range(self.capacity(), offset, len as u64)?;
//!         Ok(range.start as usize..range.end as usize)
//!     }
//! }
//!
//! impl Device for Memory {
//!     fn capacity(&self) -> u64 {
//!         self.0.read().unwrap().len() as u64
//!     }
//!
//!     fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
//!         Box::pin(async move {
//!             let range = self.range(offset, buffer.len())?;
//!             buffer.copy_from_slice(&self.0.read().unwrap()[range]);
//!             Ok(buffer)
//!         })
//!     }
//!
//!     fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
//!         Box::pin(async move {
//!             let data = pages.concat();
//!             let range = self.range(offset, data.len())?;
//!             self.0.write().unwrap()[range].copy_from_slice(&data);
//!             Ok(())
//!         })
//!     }
//!
//!     // There is no cache: a write that has ended is where it stays.
//!     fn flush(&self) -> DeviceFuture<'_, ()> {
//!         Box::pin(async { Ok(()) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [from, to] = [7, 0].map(|byte| Memory(Arc::new(RwLock::new(vec![byte; 100_000]))));
//! let job = CopyJob::new(Source::device(from), Destination::device(to.clone()));
//! job.run().await?;
//! assert_eq!(to.0.read().unwrap()[..], [7; 100_000]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod advice;
mod boxed;
mod digests;
mod ends;
mod engine;
mod error;
mod host_files;
mod job;
mod joined;
mod passes;
mod progress;
mod survey;
mod verify;
mod zeros;

pub use advice::CopyAdvice;
pub use boxed::IoFuture;
pub use digests::file::DigestFile;
pub use digests::{Digests, DigestsError};
pub use ends::destination::Destination;
pub use ends::file::FileDevice;
pub use ends::file::holders::InUse;
pub use ends::file::options::FileOptions;
pub use ends::identity::Identity;
pub use ends::nbd::{DirtyBitmap, NbdAdvice, NbdDevice, NbdError, NbdStream, NbdTls, NbdUri};
pub use ends::source::Source;
pub use error::{CopyError, Failure};
pub use iscsi_block_device::{self as device, Device, RangeSet};
pub use job::CopyJob;
pub use job::control::Control;
pub use job::copied::Copied;
pub use job::options::CopyOptions;
pub use passes::changes::Changes;
pub use passes::forecast::{Divergence, Forecast, Pass, Verdict};
pub use passes::{EndedPass, Passes, PassesError};
pub use progress::checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
pub use progress::checkpoint_file::CheckpointFile;
pub use progress::{Event, Events, Progress};
pub use verify::checksums::Checksums;
pub use verify::{Difference, Verify, VerifyError};

/// Traits for a simulation, which supplies the files for checkpoints and digests: see
/// [`DigestFile::open_on`]. They may change at any time.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::host_files::{HostFiles, KeptFile, NewFile};
}

/// Compiles the code examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
