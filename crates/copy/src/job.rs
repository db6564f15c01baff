//! Copy jobs.

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
use crate::progress::{Events, Reporter};
use control::Control;
use copied::Copied;
use options::CopyOptions;
use resumption::Resumption;

/// A copy from a source to a destination. It begins when it [runs](Self::run).
///
/// Only the parts of the source that hold data are read, as far as the source reports them. Zeros are written
/// in the cheapest way that the destination supports, or skipped if the destination reads as zeros already.
/// Memory is bounded. When the copy has succeeded, all of its data is flushed. If the destination reports
/// that unflushed writes may be lost, only these are copied again.
#[derive(Debug)]
pub struct CopyJob {
    source: Source,
    destination: Destination,
    options: CopyOptions,
    resumption: Option<Resumption>,
    control: Control,
    reporter: Reporter,
}

impl CopyJob {
    /// Creates a copy of the whole source, to the same offsets of the destination.
    pub fn new(source: Source, destination: Destination) -> Self {
        let reporter = Reporter::new();
        let control = Control::new(reporter.shown());
        let options = CopyOptions::default();
        Self { source, destination, options, resumption: None, control, reporter }
    }

    /// Sets the options.
    #[must_use]
    pub fn with_options(mut self, options: CopyOptions) -> Self {
        self.options = options;
        self
    }

    /// Resumes an earlier run from the checkpoint in this file, or starts a new one, and saves the progress
    /// in the file.
    ///
    /// The bytes that the checkpoint records as flushed are not copied again; without a checkpoint everything
    /// is copied. After each flush the file records the progress, so that a run that is cancelled, fails or
    /// is killed can be resumed by the same call. After the end of the copy the file remains, and records
    /// that everything is done: remove it before the next full copy. This call replaces
    /// [`CopyOptions::with_checkpoint`], and may come before or after [`with_options`](Self::with_options).
    ///
    /// The source and the destination must be recognizable: a `Disk` of `iscsi-initiator` by the name of its
    /// unit, a [`FileDevice`](crate::FileDevice) by its inode number and its times, any other device by the
    /// identity that [`Source::with_identity`] and [`Destination::with_identity`] set. A source that has
    /// changed is refused, and so is a destination that another program has written to.
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
    /// [`CopyError::Checkpoint`] if the file cannot be read or written, is damaged, or belongs to another
    /// copy; [`CopyError::Source`] and [`CopyError::Destination`] for a stream, or a device that a later run
    /// could not recognize. In all these cases nothing is written.
    #[doc(alias = "checkpoint")]
    #[doc(alias = "restart")]
    pub async fn resume_from(mut self, path: impl Into<PathBuf>) -> Result<Self, CopyError> {
        let resumption = Resumption::begin(path.into(), &self.source, &self.destination).await?;
        self.resumption = Some(resumption);
        Ok(self)
    }

    /// Returns the bytes that earlier runs have copied, as recorded in the checkpoint that this copy [resumes
    /// from](Self::resume_from). Pass them to [`Verify::with_earlier`](crate::Verify::with_earlier).
    pub fn resumed(&self) -> RangeSet {
        self.resumption.as_ref().map(|resumption| resumption.done().clone()).unwrap_or_default()
    }

    /// Returns a handle that controls the copy, even while it runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Subscribes to the events of the copy.
    pub fn events(&self) -> Events {
        self.reporter.events()
    }

    /// Copies everything, and flushes it. If the returned future is dropped, the copy stops; data in flight
    /// may or may not be written.
    ///
    /// # Errors
    /// The first error, with the progress of the copy. Everything written before the error is flushed, unless
    /// the destination failed.
    pub async fn run(self) -> Result<Copied, Failure> {
        let Self { source, destination, options, resumption, control, reporter } = self;
        let options = match resumption {
            Some(resumption) => resumption.applied_to(options),
            None => options,
        };
        let engine = Engine::new(source, destination, options, control, reporter);
        engine.run().await
    }
}
