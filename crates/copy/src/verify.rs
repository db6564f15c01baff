//! Whether the destination holds what was read from the source.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::Device;
use thiserror::Error as ThisError;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::boxed::{BoxFuture, boxed};
use crate::checksums::{Checksums, sum};
use crate::control::{Control, Order};
use crate::destination::Destination;
use crate::digests::Digests;
use crate::pool::Pool;
use crate::progress::{Events, Progress, Teller};
use crate::questions::Pace;
use crate::range_set::RangeSet;
use crate::read_back::{Expected, Piece, ReadBack, Step};
use crate::source::Source;
use crate::zeros::is_zero;

/// An answer that is waited for is no longer waited for after some time.
const REFRESH: Duration = Duration::from_millis(100);

/// Reads a destination back, and compares it with what was read from the source in the copy.
#[derive(Debug)]
pub struct Verify {
    source: Source,
    destination: Arc<dyn Device>,
    checksums: Checksums,
    /// What another run has copied.
    earlier: RangeSet,
    /// What copies have left, of which there is no source any more.
    digests: Option<Digests>,
    /// Whether neither end is asked where it holds data.
    reads_holes: bool,
    control: Control,
    teller: Teller,
    pool: Pool,
    /// Reads under way at once; `None` follows what the destination says.
    queue_depth: Option<usize>,
}

/// Why a destination is not known to hold what it should.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum VerifyError {
    /// It holds something else.
    #[error("{0}")]
    Mismatch(Difference),
    /// It could not be read.
    #[error("destination: {0}")]
    Destination(#[source] io::Error),
    /// The source could not be read again, where another run had read it.
    #[error("source: {0}")]
    Source(#[source] io::Error),
    /// A stream cannot be read back.
    #[error("a stream cannot be read back")]
    Stream,
    /// It was told to stop.
    #[error("cancelled")]
    Cancelled,
}

/// Where two ends differ first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Difference {
    /// At this byte.
    At(u64),
    /// Somewhere in these bytes: the source cannot tell any more.
    Within {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        len: u64,
    },
}

/// Reads a piece back; where it begins, and what it is if it is not what it should be.
async fn look(
    device: Arc<dyn Device>,
    source: Source,
    pool: Pool,
    piece: Piece,
) -> Result<(Range<u64>, Option<Bytes>), VerifyError> {
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
    /// A look at the destination of a copy, with the checksums that came of it.
    ///
    /// # Errors
    /// [`VerifyError::Stream`].
    pub fn new(
        source: Source,
        destination: &Destination,
        checksums: Checksums,
    ) -> Result<Self, VerifyError> {
        let destination = destination.shared().ok_or(VerifyError::Stream)?;
        let teller = Teller::new();
        Ok(Self {
            source,
            destination,
            checksums,
            earlier: RangeSet::new(),
            digests: None,
            reads_holes: false,
            control: Control::new(teller.shown()),
            teller,
            pool: Pool::default(),
            queue_depth: None,
        })
    }

    /// A look at a destination by what copies have [kept](crate::Options::with_digests), at any time and from
    /// anywhere: the source is not needed. Only what the digests know is read.
    ///
    /// # Errors
    /// [`VerifyError::Stream`].
    pub fn by_digests(destination: &Destination, digests: Digests) -> Result<Self, VerifyError> {
        let nothing = Source::stream(tokio::io::empty(), None);
        let verify = Self::new(nothing, destination, Checksums::default())?;
        Ok(Self { digests: Some(digests), ..verify })
    }

    /// The same look also at what [another run](crate::Options::with_done) has copied: there the source is
    /// read again.
    #[must_use]
    pub fn with_earlier(mut self, done: RangeSet) -> Self {
        self.earlier = done;
        self
    }

    /// Reads the destination also where it reports that it holds no data, instead of taking its word that these parts read
    /// as zeros. Some file systems have reported data as holes.
    #[must_use]
    pub const fn with_holes_read(mut self, reads: bool) -> Self {
        self.reads_holes = reads;
        self
    }

    /// The same look with so many reads under way at once, at least 1; otherwise it follows what the
    /// destination says.
    #[must_use]
    pub fn with_queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = Some(depth.max(1));
        self
    }

    /// How many bytes it looks at.
    pub fn bytes(&self) -> u64 {
        let known = self.digests.as_ref().map_or(0, Digests::bytes);
        self.checksums.bytes() + self.earlier.bytes() + known
    }

    /// A hand on it, also while it runs. What is equal counts as done.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What will happen in it.
    pub fn events(&self) -> Events {
        self.teller.events()
    }

    /// Reads all back. Zeros are not read where the destination reports that it holds no data there, unless
    /// [holes are read](Self::with_holes_read).
    ///
    /// # Errors
    /// The first difference that there is, or the first error before it.
    pub async fn run(self) -> Result<Progress, VerifyError> {
        self.read_back().await
    }

    fn read_back(mut self) -> BoxFuture<'static, Result<Progress, VerifyError>> {
        boxed(async move {
            self.teller.progress.total = Some(self.bytes());
            let mut pieces = self.pieces();
            let mut reads = JoinSet::new();
            // In the order of the device: what was begun, and of that what was read.
            let mut begun = VecDeque::new();
            let mut read = BTreeMap::new();
            loop {
                let order = self.control.order();
                let mut pace = if order == Order::Run { Pace::Going } else { Pace::Paused };
                while order == Order::Run && begun.len() < self.depth(pieces.longest()) {
                    match pieces.next() {
                        Some(Step::Told(bytes)) => self.teller.progress.done += bytes,
                        Some(Step::Read(piece, blind)) => {
                            let (source, pool) = (self.source.clone(), self.pool.clone());
                            let looking =
                                look(Arc::clone(&self.destination), source, pool, piece.clone());
                            reads.spawn(async move { (looking.await, blind) });
                            begun.push_back(piece);
                        }
                        None => {
                            pace = Pace::Starved;
                            break;
                        }
                    }
                }
                pieces.note(pace);
                if begun.is_empty() && order == Order::Run && pieces.is_over() {
                    self.teller.show();
                    return Ok(self.teller.progress);
                }
                let broken = |error| VerifyError::Destination(io::Error::from(error));
                tokio::select! {
                    biased;
                    () = self.control.at_least(Order::Cancel) => return Err(VerifyError::Cancelled),
                    Some(ended) = reads.join_next() => {
                        let (looked, blind) = ended.map_err(broken)?;
                        let (range, found) = looked?;
                        pieces.end_read(range.end - range.start, blind);
                        read.insert(range.start, found);
                    }
                    Some(answered) = pieces.answered() => answered.map_err(broken)?,
                    () = self.control.other_than(order) => {}
                    () = sleep(REFRESH), if pace == Pace::Starved => {}
                }
                self.take(&mut begun, &mut read).await?;
                self.teller.show();
            }
        })
    }

    /// Takes what was read, in its order.
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
            self.teller.progress.done += range.end - range.start;
            begun.pop_front();
        }
        Ok(())
    }

    /// How many pieces are read at once, of which the longest has so many bytes.
    fn depth(&self, longest: usize) -> usize {
        self.queue_depth.unwrap_or_else(|| self.destination.queue_depth(longest).max(1))
    }

    /// What has to be read back.
    fn pieces(&mut self) -> ReadBack {
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
        ReadBack::new(source, destination, known, [zeros, earlier], self.reads_holes)
    }

    /// Finds the byte, if the source still says what it said.
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
    /// The same difference, where the copy went to a later place by so many bytes.
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
