//! Verifies that the destination holds the data that was read from the source.

pub(crate) mod checksums;
mod pieces;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{Device, DeviceError, RangeSet};
use thiserror::Error as ThisError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::boxed::{BoxFuture, boxed};
use crate::digests::Digests;
use crate::ends::destination::Destination;
use crate::ends::source::Source;
use crate::engine::pool::Pool;
use crate::job::control::{Control, Order};
use crate::job::rate_limit::{RateLimit, at};
use crate::joined::joined;
use crate::progress::{Events, Progress, Reporter};
use crate::survey::questions::Pace;
use crate::zeros::is_zero;
use checksums::{Checksums, sum};
use pieces::{Expected, Piece, Pieces, Side, Step};

/// Interval at which the pace of reading is updated while results of queries are awaited.
const REFRESH: Duration = Duration::from_millis(100);

/// Reads a destination back, and compares it with the data that the copy has read from the source.
#[derive(Debug)]
pub struct Verify {
    source: Source,
    destination: Arc<dyn Device>,
    checksums: Checksums,
    /// Ranges that another run has copied: they have no checksum, and are compared with the source.
    earlier: RangeSet,
    /// Digests that copies have stored, for a verification without the source.
    digests: Option<Digests>,
    /// Whether neither source nor destination is queried where it holds data.
    reads_holes: bool,
    control: Control,
    reporter: Reporter,
    pool: Pool,
    /// Number of concurrent reads; `None` uses the depth that the destination reports.
    queue_depth: Option<usize>,
}

/// Reasons why a verification cannot confirm the data of a destination.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum VerifyError {
    /// The destination holds other data than were written to it.
    #[error("{0}")]
    Mismatch(Difference),
    /// The destination could not be read.
    #[error("destination: {0}")]
    Destination(#[source] DeviceError),
    /// The source could not be read again. Data that an earlier run has copied are compared with the source
    /// itself.
    #[error("source: {0}")]
    Source(#[source] DeviceError),
    /// The destination is a stream, or the source is one and would have to be read again. A stream cannot be
    /// read back.
    #[error("a stream cannot be read back")]
    Stream,
    /// The verification was [cancelled](crate::Control::cancel).
    #[error("cancelled")]
    Cancelled,
}

/// The first place at which source and destination differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Difference {
    /// The destination differs at this byte.
    At(u64),
    /// The destination differs somewhere in this range. The exact byte is unknown, because the source is not
    /// available for a comparison, or has changed since the copy.
    Within {
        /// Offset of the first byte of the range.
        offset: u64,
        /// Length of the range, bytes.
        len: u64,
    },
}

/// The result of comparing a piece: its range, and its bytes if they differ from the expected ones.
type Compared = Result<(Range<u64>, Option<Bytes>), VerifyError>;
/// The reads in flight. Each has the side that had not reported yet, when the read began, whether the range holds
/// data; `None` if that was known.
type Comparisons = JoinSet<(Compared, Option<Side>)>;

/// Reads a piece from the destination, and compares it with the expected data.
async fn compare_piece(
    device: Arc<dyn Device>,
    source: Source,
    pool: Pool,
    piece: Piece,
) -> Compared {
    let (range, expected) = piece;
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let read = device.read_with(range.start, len, Arc::new(pool.clone())).await;
    let data = pool.lend(read.map_err(VerifyError::Destination)?);
    let is_equal = match (expected, source.device_ref()) {
        (Expected::Zeros, _) => is_zero(&data),
        (Expected::Sum(expected), _) => sum(&data) == expected,
        (Expected::Blake3(expected), _) => blake3::hash(&data) == expected,
        (Expected::Source, Some(source)) => {
            let read = source.read_with(range.start, len, Arc::new(pool.clone())).await;
            pool.lend(read.map_err(VerifyError::Source)?) == data
        }
        (Expected::Source, None) => return Err(VerifyError::Stream),
    };
    Ok((range, (!is_equal).then_some(data)))
}

impl Verify {
    /// Creates a verification of the destination of a copy, with the checksums of [`Copied`](crate::Copied).
    ///
    /// # Errors
    /// [`VerifyError::Stream`].
    pub fn new(
        source: Source,
        destination: &Destination,
        checksums: Checksums,
    ) -> Result<Self, VerifyError> {
        let destination = destination.shared().ok_or(VerifyError::Stream)?;
        let reporter = Reporter::new();
        Ok(Self {
            source,
            destination,
            checksums,
            earlier: RangeSet::new(),
            digests: None,
            reads_holes: false,
            control: Control::new(reporter.shown()),
            reporter,
            pool: Pool::default(),
            queue_depth: None,
        })
    }

    /// Creates a verification by the digests that copies have [stored](crate::CopyOptions::with_digests). It
    /// needs no source, so it can run at any time and on any host. Only blocks with a known digest are read.
    ///
    /// # Errors
    /// [`VerifyError::Stream`].
    pub fn by_digests(destination: &Destination, digests: Digests) -> Result<Self, VerifyError> {
        let nothing = Source::stream(tokio::io::empty(), None);
        let verify = Self::new(nothing, destination, Checksums::default())?;
        Ok(Self { digests: Some(digests), ..verify })
    }

    /// Sets the ranges that [another run](crate::CopyOptions::with_done) has copied. They are compared with
    /// the source, which is read again.
    #[must_use]
    pub fn with_earlier(mut self, done: RangeSet) -> Self {
        self.earlier = done;
        self
    }

    /// Sets whether the destination is also read where it reports that it holds no data. By default, its
    /// report is trusted, and these ranges count as zeros. Some file systems have reported data as holes.
    #[must_use]
    pub const fn with_holes_read(mut self, reads: bool) -> Self {
        self.reads_holes = reads;
        self
    }

    /// Sets the largest number of concurrent reads, at least 1. The default is the depth that the destination
    /// reports.
    #[must_use]
    pub fn with_queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = Some(depth.max(1));
        self
    }

    /// Returns the number of bytes to compare.
    pub fn bytes(&self) -> u64 {
        let known = self.digests.as_ref().map_or(0, Digests::bytes);
        self.checksums.bytes() + self.earlier.bytes() + known
    }

    /// Returns a handle that controls the verification, even while it runs. In its progress, bytes that are
    /// equal count as done.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Subscribes to the events of the verification.
    pub fn events(&self) -> Events {
        self.reporter.events()
    }

    /// Reads the destination back, and compares it. Zeros are not read where the destination reports that it
    /// holds no data, unless [holes are read](Self::with_holes_read).
    ///
    /// # Errors
    /// The first difference, or the first error before it.
    pub async fn run(self) -> Result<Progress, VerifyError> {
        self.read_back().await
    }

    fn read_back(mut self) -> BoxFuture<'static, Result<Progress, VerifyError>> {
        boxed(async move {
            self.reporter.progress.total = Some(self.bytes());
            let mut pieces = self.pieces();
            let mut reads = Comparisons::new();
            // Pieces in ascending order: those whose reads have begun, and results that wait for an earlier piece.
            let mut begun = VecDeque::new();
            let mut read = BTreeMap::new();
            let mut limit = RateLimit::new(Instant::now());
            loop {
                let (order, rate) = (self.control.order(), self.control.rate());
                limit.set(rate, Instant::now());
                let pace = match order {
                    Order::Run => self.begin(&mut pieces, &mut reads, &mut begun, &mut limit),
                    Order::Pause | Order::Cancel | Order::Abandon => Pace::Paused,
                };
                pieces.set_pace(pace);
                if begun.is_empty() && order == Order::Run && pieces.is_over() {
                    self.reporter.show();
                    return Ok(self.reporter.progress);
                }
                tokio::select! {
                    biased;
                    () = self.control.at_least(Order::Cancel) => return Err(VerifyError::Cancelled),
                    Some(ended) = reads.join_next() => {
                        let (looked, blind) = joined(ended).ok_or(VerifyError::Cancelled)?;
                        let (range, found) = looked?;
                        pieces.end_read(range.end - range.start, blind);
                        read.insert(range.start, found);
                    }
                    Some(answered) = pieces.answered() => joined(answered).ok_or(VerifyError::Cancelled)?,
                    () = self.control.other_than(order) => {}
                    () = self.control.other_rate_than(rate) => {}
                    () = at(limit.opens(Instant::now())) => {}
                    () = sleep(REFRESH), if pace == Pace::Starved => {}
                }
                self.take(&mut begun, &mut read).await?;
                self.reporter.show();
            }
        })
    }

    /// Begins as many reads as may be in flight, and returns the pace of reading.
    fn begin(
        &mut self,
        pieces: &mut Pieces,
        reads: &mut Comparisons,
        begun: &mut VecDeque<Piece>,
        limit: &mut RateLimit,
    ) -> Pace {
        let now = Instant::now();
        while limit.is_open(now) && begun.len() < self.depth(pieces.longest()) {
            match pieces.next() {
                Some(Step::Verified(bytes)) => self.reporter.progress.done += bytes,
                Some(Step::Read(piece, blind)) => {
                    limit.pay(piece.0.end - piece.0.start, now);
                    let (source, pool) = (self.source.clone(), self.pool.clone());
                    let comparison =
                        compare_piece(Arc::clone(&self.destination), source, pool, piece.clone());
                    reads.spawn(async move { (comparison.await, blind) });
                    begun.push_back(piece);
                }
                None => return Pace::Starved,
            }
        }
        Pace::Going
    }

    /// Counts completed reads as verified, in ascending order of their offsets, up to the first one that is still in
    /// flight.
    ///
    /// # Errors
    /// The first difference.
    async fn take(
        &mut self,
        begun: &mut VecDeque<Piece>,
        read: &mut BTreeMap<u64, Option<Bytes>>,
    ) -> Result<(), VerifyError> {
        while let Some((range, expected)) = begun.front() {
            let Some(found) = read.remove(&range.start) else { break };
            if let Some(found) = found {
                let difference = self.locate(range.clone(), *expected, &found).await;
                return Err(VerifyError::Mismatch(difference));
            }
            self.reporter.progress.done += range.end - range.start;
            begun.pop_front();
        }
        Ok(())
    }

    /// Returns the number of concurrent reads for pieces of at most `longest` bytes.
    fn depth(&self, longest: usize) -> usize {
        self.queue_depth.unwrap_or_else(|| self.destination.queue_depth(longest).max(1))
    }

    /// Returns the pieces to read back.
    fn pieces(&mut self) -> Pieces {
        let mut known: Vec<Piece> =
            self.checksums.parts().map(|(range, sum)| (range, Expected::Sum(sum))).collect();
        let mut zeros = self.checksums.zeros().clone();
        if let Some(digests) = self.digests.take() {
            known.extend(digests.blocks().map(|(range, sum)| (range, Expected::Blake3(sum))));
            zeros.extend(digests.zeros().iter());
        }
        known.sort_unstable_by_key(|(range, _)| range.start);
        let earlier = std::mem::take(&mut self.earlier);
        let source = self.source.device_ref().cloned();
        let destination = Arc::clone(&self.destination);
        Pieces::new(source, destination, known, [zeros, earlier], self.reads_holes)
    }

    /// Returns where the destination differs: at a byte if zeros were expected or the source still has the
    /// data that was copied, otherwise within the range.
    async fn locate(&self, range: Range<u64>, expected: Expected, found: &[u8]) -> Difference {
        let somewhere = Difference::Within { offset: range.start, len: range.end - range.start };
        let position = |wanted: &[u8]| {
            let at = wanted.iter().zip(found).position(|(wanted, found)| wanted != found);
            at.map_or(somewhere, |at| Difference::At(range.start + at as u64))
        };
        if let Expected::Zeros = expected {
            return position(&vec![0; found.len()]);
        }
        let Some(device) = self.source.device_ref() else { return somewhere };
        let read = device.read_into(range.start, BytesMut::zeroed(found.len())).await;
        match read {
            Ok(wanted) => match expected {
                Expected::Sum(expected) if sum(&wanted) != expected => somewhere,
                Expected::Blake3(_) => somewhere,
                Expected::Zeros | Expected::Sum(_) | Expected::Source => position(&wanted),
            },
            Err(_) => somewhere,
        }
    }
}

impl Difference {
    /// Returns the difference at an offset that is `by` bytes larger, for a copy to another offset of the
    /// destination.
    #[must_use]
    pub const fn moved(self, by: u64) -> Self {
        match self {
            Self::At(offset) => Self::At(offset.saturating_add(by)),
            Self::Within { offset, len } => Self::Within { offset: offset.saturating_add(by), len },
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(offset) => {
                write!(f, "the destination differs from the source at byte {offset}")
            }
            Self::Within { offset, len } => write!(
                f,
                "the destination differs from what was written in the {len} bytes at byte {offset}"
            ),
        }
    }
}
