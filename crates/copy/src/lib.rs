//! Copies disks: between iSCSI units, files, block devices, streams, and whatever else is a
//! [`Device`].
//!
//! ```
//! use iscsi_copy::{Copy, Destination, FileDevice, Source};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("iscsi-copy-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let (image, backup) = (folder.join("image"), folder.join("backup"));
//! # std::fs::write(&image, vec![7; 100_000])?;
//! let source = Source::device(FileDevice::open(&image)?);
//! let destination = Destination::file(FileDevice::create(&backup)?);
//! let copied = Copy::new(source, destination).run().await?;
//! assert_eq!(copied.progress.flushed, 100_000);
//! # assert_eq!(std::fs::read(&backup)?, std::fs::read(&image)?);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//! A [`Disk`](iscsi_initiator::Disk) is a device: `Source::device(disk)`, `Destination::device(disk)`.
#![forbid(unsafe_code)]

mod advice;
mod blank;
mod block_device;
mod blocking;
mod blocks;
mod boxed;
mod changes;
mod checkpoint;
mod checkpoint_file;
mod checksums;
mod control;
mod copied;
mod copy;
mod delta;
mod destination;
mod digest_file;
mod digesting;
mod digests;
mod engine;
mod error;
mod file;
mod file_options;
mod flush_pace;
mod flushes;
mod forecast;
mod holders;
mod host_files;
mod identity;
mod ledger;
mod memory;
mod nbd;
mod options;
mod part;
mod pass_checkpoints;
mod passes;
mod pipe;
mod pool;
mod progress;
mod questions;
mod range_set;
mod read_back;
mod regular_file;
mod replace;
mod salvage;
mod segment;
mod source;
mod survey;
mod system_files;
mod verify;
mod window;
mod zeros;

pub use advice::CopyAdvice;
pub use changes::Changes;
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
pub use checkpoint_file::CheckpointFile;
pub use checksums::Checksums;
pub use control::Control;
pub use copied::Copied;
pub use copy::Copy;
pub use destination::Destination;
pub use digest_file::DigestFile;
pub use digests::{Digests, DigestsError};
pub use error::{Error, Failure};
pub use file::FileDevice;
pub use file_options::FileOptions;
pub use forecast::{Divergence, Forecast, Pass, Verdict};
pub use holders::InUse;
pub use identity::Identity;
pub use iscsi_initiator::device::Device;
pub use nbd::{DirtyBitmap, NbdAdvice, NbdDevice, NbdError, NbdUri};
pub use options::Options;
pub use passes::{EndedPass, Passes, PassesError};
pub use progress::{Event, Events, Progress};
pub use range_set::RangeSet;
pub use source::Source;
pub use verify::{Difference, Verify, VerifyError};

/// Traits by which a simulation supplies the files for checkpoints and digests: see [`DigestFile::open_on`]. They may change at any
/// time.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::host_files::{HostFiles, KeptFile, NewFile};
}
