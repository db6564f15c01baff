//! Both ends of a copy.

use std::io;
use std::time::Duration;

use iscsi_copy::{CopyError, Destination, Identity, Source};
use iscsi_initiator::{Error as IscsiError, Initiator};
use iscsi_tuner::{Diagnosis, Size};
use tokio::time::timeout;

use crate::activity::Awaited;
use crate::args::{Args, OnReadError};
use crate::end::{Access, End, UnitEnd};
use crate::error::Error;
use crate::location::Location;
use crate::observation::Observation;
use crate::side::Side;
use crate::span::Span;
use crate::stop::Stop;

/// How long an error waits for the answer whether the unit is another one.
const QUESTION: Duration = Duration::from_secs(10);

pub(crate) const NO_WAY_BACK: Error =
    Error::Usage("a stream cannot be read back; leave --verify out, or write to a file or a unit");

/// The object would come among the data.
pub(crate) const TWO_USES: Error = Error::Usage(
    "--json and the destination both need standard output; leave one of them out, or write to another place",
);

/// Both ends of a copy. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) source: End,
    pub(crate) destination: End,
    span: Span,
}

impl Ends {
    /// Opens both ends, each by its initiator: two units side by side, otherwise nothing is made of a
    /// destination whose source cannot be had.
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
            // The error of the source is the one to tell.
            tokio::try_join!(source, async { Ok(destination.await) })?
        } else {
            (source.await?, destination.await)
        };
        match destination {
            Ok(destination) => Ok(Self { source, destination, span }),
            Err(error) => {
                // Nothing was sent that it could still carry out.
                drop(source.close(stop).await);
                Err(error)
            }
        }
    }

    /// A destination that is only read, in both places.
    pub(crate) fn of_one(end: End, span: Span) -> Self {
        Self { source: end.clone(), destination: end, span }
    }

    /// Whether the source can go to the destination as is asked for.
    pub(crate) fn check(&self, args: &Args) -> Result<(), Error> {
        let Self { source, destination, span } = self;
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
            return Err(Error::Usage(
                "nothing can be left out of a stream; leave --on-read-error out, or copy between files and units",
            ));
        }
        span.check_streams(source.is_stream(), destination.is_stream())
    }

    /// Whether the destination has room for what is copied.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        self.span.check(&self.source.to_source(), &self.destination.to_destination())
    }

    /// The content to copy.
    pub(crate) fn to_source(&self) -> Source {
        self.span.of_source(self.source.to_source())
    }

    /// Where it goes.
    pub(crate) fn to_destination(&self) -> Destination {
        self.span.of_destination(self.destination.to_destination())
    }

    /// The first byte at the destination that is written.
    pub(crate) fn place(&self) -> u64 {
        self.span.place()
    }

    /// What makes both the same the next day, where others write to the source meanwhile or not.
    ///
    /// # Errors
    /// [`Error::Usage`] for a stream; [`Error::Nameless`]; what the system says.
    pub(crate) fn identities(&self, is_in_use: bool) -> Result<(Identity, Identity), Error> {
        let source = if is_in_use {
            self.span.of_source_identity(self.source.source_in_use_identity()?)
        } else {
            self.source_identity()?
        };
        Ok((source, self.destination_identity()?))
    }

    /// What makes the source the same the next day.
    ///
    /// # Errors
    /// As [`identities`](Self::identities).
    pub(crate) fn source_identity(&self) -> Result<Identity, Error> {
        Ok(self.span.of_source_identity(self.source.source_identity()?))
    }

    /// What makes the destination the same the next day.
    ///
    /// # Errors
    /// As [`identities`](Self::identities).
    pub(crate) fn destination_identity(&self) -> Result<Identity, Error> {
        Ok(self.span.of_destination_identity(self.destination.destination_identity()?))
    }

    /// The same ends, for reads and writes of `io_size` bytes.
    #[must_use]
    pub(crate) fn with_io_size(self, io_size: usize) -> Self {
        let Self { source, destination, span } = self;
        Self {
            span,
            source: source.with_io_size(io_size),
            destination: destination.with_io_size(io_size),
        }
    }

    /// The units that they consist of, those of the destination first.
    pub(crate) fn units(&self) -> impl Iterator<Item = &UnitEnd> {
        [&self.destination, &self.source].into_iter().flat_map(End::units)
    }

    /// The end whose units want the most reads or writes of `io_size` bytes by now, with how many.
    pub(crate) fn deepest(&self, io_size: usize) -> Option<(&End, usize)> {
        let (to, from) = (&self.destination, &self.source);
        let depths = [(to, to.queue_depth(io_size)), (from, from.read_depth(io_size))];
        let known = depths.into_iter().filter_map(|(end, depth)| Some((end, depth?)));
        known.max_by_key(|(_, depth)| *depth)
    }

    /// What an end waits for at this moment, the destination first; `None` if all flows.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        let sides = [(Side::Destination, &self.destination), (Side::Source, &self.source)];
        let are_both_remote = sides.iter().all(|(_, end)| end.is_remote());
        let awaited = sides.into_iter().find_map(|(side, end)| Some((side, end.awaited()?)));
        awaited.map(|(side, awaited)| Awaited { side: are_both_remote.then_some(side), ..awaited })
    }

    /// Looks at the sessions of both ends.
    pub(crate) async fn observe(&self) -> Vec<Observation> {
        let mut observations = Vec::new();
        for unit in self.units() {
            observations.push(Observation::begin(unit).await);
        }
        observations
    }

    /// What has held each end back since then.
    pub(crate) async fn diagnose(&self, observations: Vec<Observation>) -> Vec<(Side, Diagnosis)> {
        let mut diagnoses = Vec::new();
        for (unit, observation) in self.units().zip(observations) {
            diagnoses.extend(observation.end(unit).await);
        }
        // In the order of the way.
        diagnoses.reverse();
        diagnoses
    }

    /// What went wrong with the copy, at which end.
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
            CopyError::Cancelled | CopyError::Abandoned { .. } => Error::Interrupted,
            other @ (CopyError::Digests(_) | _) => {
                self.destination.failed(Side::Destination, io::Error::other(other))
            }
        }
    }

    /// Makes sure that the ends are still the units that were opened: not every target tells of it when
    /// it puts another one in the place of one.
    pub(crate) async fn confirm(&self, stop: &Stop) -> Result<(), Error> {
        for unit in self.units() {
            let confirmed = unless(stop, unit.confirm()).await;
            confirmed.map_err(|error| Error::Unconfirmed(Box::new(error)))?;
        }
        Ok(())
    }

    /// An error of a request, or its reason: what takes the place of a unit may refuse the request in any
    /// words.
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

    /// Ends the sessions with both.
    ///
    /// # Errors
    /// If the destination's target may still carry out what was sent to it.
    pub(crate) async fn close(&self, stop: &Stop) -> Result<(), Error> {
        tokio::join!(self.source.close(stop), self.destination.close(stop)).1
    }
}

/// Waits for some work, unless the copy shall stop before.
pub(crate) async fn unless<T>(
    stop: &Stop,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    stop.unless(work).await.unwrap_or(Err(Error::Interrupted))
}
