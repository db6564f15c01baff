//! Opens, checks and closes the source and the destination of a copy.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use iscsi_copy::{CopyError, Destination, Identity, Source};
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{Error as IscsiError, Initiator};
use iscsi_tuner::{Diagnosis, Size};
use tokio::time::timeout;

use crate::args::{Args, OnReadError, ResumptionArgs};
use crate::end::awaited::Awaited;
use crate::end::{Access, End, UnitEnd};
use crate::error::Error;
use crate::job::span::Span;
use crate::location::Location;
use crate::report::observation::Observation;
use crate::side::Side;
use crate::stop::Stop;

/// Time limit of the check, after an error, whether a unit was replaced.
const QUESTION: Duration = Duration::from_secs(10);

pub(crate) const NO_WAY_BACK: Error = Error::Program(ProgramError::Usage(Cow::Borrowed(
    "a stream cannot be read back; leave --verify out, or write to a file or a unit",
)));

/// Error for a copy whose data and JSON object would both go to standard output.
pub(crate) const TWO_USES: Error = Error::Program(ProgramError::Usage(Cow::Borrowed(
    "--json and the destination both need standard output; leave one of them out, or write to another place",
)));

/// The source and the destination of a copy. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) source: End,
    pub(crate) destination: End,
    span: Span,
    /// The names that the user gives to the source and the destination.
    ids: [Option<Arc<str>>; 2],
}

impl Ends {
    /// Opens source and destination, each with its initiator. Two units are opened concurrently. Otherwise the
    /// source is opened first, so that no destination file is created if the source cannot be opened.
    pub(crate) async fn open(
        access: Access,
        span: Span,
        from: &Location,
        to: &Location,
        [reader, writer]: [&Initiator; 2],
        bitmap: Option<&str>,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let source = unless(stop, End::source(from, reader, bitmap));
        let destination = unless(stop, End::destination(to, writer, access));
        let (source, destination) = if from.has_units() && to.has_units() {
            // If source and destination both fail, the error of the source is returned.
            tokio::try_join!(source, async { Ok(destination.await) })?
        } else {
            (source.await?, destination.await)
        };
        match destination {
            Ok(destination) => Ok(Self { source, destination, span, ids: [None, None] }),
            Err(error) => {
                // The source has received no writes, so an error of its logout is ignored.
                drop(source.close(stop).await);
                Err(error)
            }
        }
    }

    /// Creates the pair for a destination that is only read. The destination then is both ends of the pair.
    pub(crate) fn of_one(end: End, span: Span) -> Self {
        Self { source: end.clone(), destination: end, span, ids: [None, None] }
    }

    /// Sets the names by which the user knows the source and the destination.
    pub(crate) fn with_ids(self, args: &ResumptionArgs) -> Self {
        let ids = [&args.source_id, &args.destination_id].map(|id| id.as_deref().map(Arc::from));
        Self { ids, ..self }
    }

    /// Checks that the source can be copied to the destination with these arguments.
    pub(crate) fn check(&self, args: &Args) -> Result<(), Error> {
        let Self { source, destination, span, .. } = self;
        if let Some(kind) = source.same_as(destination) {
            return Err(Error::Same(kind));
        }
        if args.output.wants_json() && destination.is_standard_output() {
            return Err(TWO_USES);
        }
        if args.content.verify.reads_back() && destination.is_stream() {
            return Err(NO_WAY_BACK);
        }
        let skips = args.resumption.on_read_error == OnReadError::Skip;
        if skips && (source.is_stream() || destination.is_stream()) {
            return Err(ProgramError::usage(
                "nothing can be left out of a stream; leave --on-read-error out, or copy between files and units",
            ).into());
        }
        span.check_streams(source.is_stream(), destination.is_stream())
    }

    /// Checks that the destination is large enough for the data to copy.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        self.span.check(&self.source.to_source(), &self.destination.to_destination())
    }

    /// Returns the part of the source to copy.
    pub(crate) fn to_source(&self) -> Source {
        self.span.of_source(self.source.to_source())
    }

    /// Returns the part of the destination to write.
    pub(crate) fn to_destination(&self) -> Destination {
        self.span.of_destination(self.destination.to_destination())
    }

    /// Returns the offset of the first byte that is written at the destination.
    pub(crate) fn place(&self) -> u64 {
        self.span.place()
    }

    /// Returns the identities of the source and of the destination in later runs. If the source `is_in_use`,
    /// its identity does not depend on its data.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] for a stream; [`Error::Nameless`]; the error of the system.
    pub(crate) fn identities(&self, is_in_use: bool) -> Result<(Identity, Identity), Error> {
        let source = if is_in_use && self.ids[0].is_none() {
            self.span.of_source_identity(self.source.source_in_use_identity()?)
        } else if is_in_use {
            self.source_identity()?.in_use()
        } else {
            self.source_identity()?
        };
        Ok((source, self.destination_identity()?))
    }

    /// Returns the identity by which later runs recognise the source.
    ///
    /// # Errors
    /// The errors of [`identities`](Self::identities).
    pub(crate) fn source_identity(&self) -> Result<Identity, Error> {
        let [id, _] = &self.ids;
        let identity = self.source.renamed(id.as_deref(), self.source.source_identity())?;
        Ok(self.span.of_source_identity(identity))
    }

    /// Returns the identity by which later runs recognise the destination.
    ///
    /// # Errors
    /// The errors of [`identities`](Self::identities).
    pub(crate) fn destination_identity(&self) -> Result<Identity, Error> {
        let [_, id] = &self.ids;
        let identity = self.destination.destination_identity();
        let identity = self.destination.renamed(id.as_deref(), identity)?;
        Ok(self.span.of_destination_identity(identity))
    }

    /// Sets the length of reads and writes in bytes.
    #[must_use]
    pub(crate) fn with_io_size(self, io_size: usize) -> Self {
        let Self { source, destination, span, ids } = self;
        Self {
            span,
            ids,
            source: source.with_io_size(io_size),
            destination: destination.with_io_size(io_size),
        }
    }

    /// Returns the units of source and destination, those of the destination first.
    pub(crate) fn units(&self) -> impl Iterator<Item = &UnitEnd> {
        [&self.destination, &self.source].into_iter().flat_map(End::units)
    }

    /// Returns the source or destination whose units need the most concurrent reads or writes of `io_size`
    /// bytes, and that number.
    pub(crate) fn deepest(&self, io_size: usize) -> Option<(&End, usize)> {
        let (to, from) = (&self.destination, &self.source);
        let depths = [(to, to.queue_depth(io_size)), (from, from.read_depth(io_size))];
        let known = depths.into_iter().filter_map(|(end, depth)| Some((end, depth?)));
        known.max_by_key(|(_, depth)| *depth)
    }

    /// Returns what the copy waits for at the moment: at the destination, or else at the source. `None` if
    /// neither waits.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        let sides = [(Side::Destination, &self.destination), (Side::Source, &self.source)];
        let are_both_remote = sides.iter().all(|(_, end)| end.is_remote());
        let awaited = sides.into_iter().find_map(|(side, end)| Some((side, end.awaited()?)));
        awaited.map(|(side, awaited)| Awaited { side: are_both_remote.then_some(side), ..awaited })
    }

    /// Takes the counters of all sessions, of source and destination.
    pub(crate) async fn observe(&self) -> Vec<Observation> {
        let mut observations = Vec::new();
        for unit in self.units() {
            observations.push(Observation::begin(unit).await);
        }
        observations
    }

    /// Returns what has held the source and the destination back since the observations.
    pub(crate) async fn diagnose(&self, observations: Vec<Observation>) -> Vec<(Side, Diagnosis)> {
        let mut diagnoses = Vec::new();
        for (unit, observation) in self.units().zip(observations) {
            diagnoses.extend(observation.end(unit).await);
        }
        // Report the source first, in the direction of the data.
        diagnoses.reverse();
        diagnoses
    }

    /// Returns the error for a failure of the copy, with the side that failed.
    pub(crate) fn failed(&self, error: CopyError) -> Error {
        match error {
            CopyError::Source(cause) => self.source.failed(Side::Source, cause),
            CopyError::Destination(cause) | CopyError::Flush(cause) => {
                self.destination.failed(Side::Destination, cause)
            }
            CopyError::ReadOnly => {
                let cause = io::ErrorKind::ReadOnlyFilesystem;
                self.destination.failed(Side::Destination, cause)
            }
            CopyError::Shrunk => Error::Shrunk(self.source.name()),
            CopyError::TooSmall { capacity, needed } => {
                Error::TooSmall { capacity: Size(capacity), needed: Size(needed) }
            }
            CopyError::Overflow { capacity } => Error::Overflow { capacity: Size(capacity) },
            CopyError::Abandoned { in_flight } if in_flight > 0 => {
                Error::Abandoned { under_way: Size(in_flight) }
            }
            CopyError::Cancelled | CopyError::Abandoned { .. } => ProgramError::Interrupted.into(),
            other @ (CopyError::Digests(_) | _) => {
                self.destination.failed(Side::Destination, io::Error::other(other))
            }
        }
    }

    /// Checks that the units are still those that were opened. Not every target reports that it has replaced a
    /// unit.
    pub(crate) async fn confirm(&self, stop: &Stop) -> Result<(), Error> {
        for unit in self.units() {
            let confirmed = unless(stop, unit.confirm()).await;
            confirmed.map_err(|error| Error::Unconfirmed(Box::new(error)))?;
        }
        Ok(())
    }

    /// If `error` is a refusal by a target, checks the units of that side of the copy. Returns the error that a
    /// unit was replaced if the check finds another unit, which may have refused for any reason. Otherwise
    /// returns `error`.
    pub(crate) async fn explained(&self, error: Error, stop: &Stop) -> Error {
        let Error::Unit { side, cause } = &error else { return error };
        if cause.source_as::<IscsiError>().is_none_or(|cause| cause.sense().is_none()) {
            return error;
        }
        let confirmed = async {
            for unit in self.units().filter(|unit| unit.side() == *side) {
                unit.confirm().await?;
            }
            Ok(())
        };
        match timeout(QUESTION, unless(stop, confirmed)).await {
            Ok(Err(reason)) if reason.is_changed_unit() => reason,
            _ => error,
        }
    }

    /// Logs out of the units of source and destination.
    ///
    /// # Errors
    /// If the destination's target may still execute a write that was sent to it.
    pub(crate) async fn close(&self, stop: &Stop) -> Result<(), Error> {
        tokio::join!(self.source.close(stop), self.destination.close(stop)).1
    }
}

/// Waits for work, or returns an error if a stop is requested first.
pub(crate) async fn unless<T>(
    stop: &Stop,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    stop.unless(work).await.unwrap_or(Err(ProgramError::Interrupted.into()))
}
