//! A copy.

pub(crate) mod control;
pub(crate) mod copied;
pub(crate) mod options;
pub(crate) mod rate_limit;
mod resumption;

use std::path::PathBuf;

use iscsi_block_device::RangeSet;

use crate::ends::destination::Destination;
use crate::ends::source::Source;
use crate::engine::Engine;
use crate::error::{CopyError, Failure};
use crate::progress::{Events, Teller};
use control::Control;
use copied::Copied;
use options::CopyOptions;
use resumption::Resumption;

/// A copy from a source to a destination. Nothing happens before it [runs](Self::run).
///
/// Only the parts of the source that hold data are read, as far as the source reports them; zeros are made the cheapest
/// way that the destination has, or not at all if it reads as zeros. Memory is bounded. When the copy has succeeded, all of it
/// is flushed. If the destination reports meanwhile that it may have lost what was not flushed, that is copied again, and no
/// more.
#[derive(Debug)]
pub struct CopyJob {
    source: Source,
    destination: Destination,
    options: CopyOptions,
    resumption: Option<Resumption>,
    control: Control,
    teller: Teller,
}

impl CopyJob {
    /// Creates a copy of all that the source has, to the same place of the destination.
    pub fn new(source: Source, destination: Destination) -> Self {
        let teller = Teller::new();
        let control = Control::new(teller.shown());
        let options = CopyOptions::default();
        Self { source, destination, options, resumption: None, control, teller }
    }

    /// Sets the options.
    #[must_use]
    pub fn with_options(mut self, options: CopyOptions) -> Self {
        self.options = options;
        self
    }

    /// Resumes an earlier run from the checkpoint in this file, or begins one there, and keeps it from now on.
    ///
    /// The bytes that the checkpoint records as flushed are not copied again; without a checkpoint all are copied. After each
    /// flush the file records what is done, so that a run that is cancelled, fails or is killed can be resumed by the same
    /// call. It stays where it is after the end, and says then that all is done: remove it before the next full copy.
    /// It takes the place of [`CopyOptions::with_checkpoint`], and may be called before or after
    /// [`with_options`](Self::with_options).
    ///
    /// Both ends must be recognizable: a `Disk` of `iscsi-initiator` by the name of its unit, a
    /// [`FileDevice`](crate::FileDevice) by its number and its times, a device of another kind by the identity that
    /// [`Source::with_identity`] and [`Destination::with_identity`] set. A source that has changed and a destination that others
    /// have written to are refused.
    ///
    /// ```
    /// use iscsi_copy::{CopyJob, Destination, FileDevice, Source};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let [image, backup, map] = ["image", "backup", "map"].map(|name| folder.path().join(name));
    /// # std::fs::write(&image, vec![7; 100_000])?;
    /// let source = Source::device(FileDevice::open(&image)?);
    /// let destination = Destination::file(FileDevice::create(&backup)?);
    /// let job = CopyJob::new(source, destination).resume_from(&map).await?;
    /// assert_eq!(job.resumed().bytes(), 0, "the first run");
    /// job.run().await?;
    /// # let source = Source::device(FileDevice::open(&image)?);
    /// # let destination = Destination::file(FileDevice::create(&backup)?);
    /// # let job = CopyJob::new(source, destination).resume_from(&map).await?;
    /// # assert_eq!(job.resumed().bytes(), 100_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CopyError::Checkpoint`] if the file cannot be read or written, is damaged, or is of other ends;
    /// [`CopyError::Source`] and [`CopyError::Destination`] for an end that is a stream, or that a later run could not
    /// recognize. Nothing is written then.
    #[doc(alias = "checkpoint")]
    #[doc(alias = "restart")]
    pub async fn resume_from(mut self, path: impl Into<PathBuf>) -> Result<Self, CopyError> {
        let resumption = Resumption::begin(path.into(), &self.source, &self.destination).await?;
        self.resumption = Some(resumption);
        Ok(self)
    }

    /// Returns the bytes that earlier runs have copied, by the checkpoint that the copy is
    /// [resumed from](Self::resume_from). For [`Verify::with_earlier`](crate::Verify::with_earlier).
    pub fn resumed(&self) -> RangeSet {
        self.resumption.as_ref().map(|resumption| resumption.done().clone()).unwrap_or_default()
    }

    /// Returns a handle that controls the copy, also while it runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Subscribes to the events of the copy.
    pub fn events(&self) -> Events {
        self.teller.events()
    }

    /// Copies all, and flushes it. A future that is dropped leaves the copy where it is; data in flight may be
    /// written or not.
    ///
    /// # Errors
    /// The first error, and how far the copy came. What had been written by then is flushed, unless the destination is what
    /// failed.
    pub async fn run(self) -> Result<Copied, Failure> {
        let Self { source, destination, options, resumption, control, teller } = self;
        let options = match resumption {
            Some(resumption) => resumption.applied_to(options),
            None => options,
        };
        let engine = Engine::new(source, destination, options, control, teller);
        engine.run().await
    }
}
