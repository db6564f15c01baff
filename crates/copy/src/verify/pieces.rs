//! Decides which pieces a verification reads back, in ascending order of their offsets.
//!
//! Where zeros are expected, the destination is queried whether it reads as zeros. For ranges that another
//! run has copied, the source is queried too. Reading continues meanwhile.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use iscsi_block_device::{Device, DeviceErrorKind, DeviceResult, Extent, RangeSet};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::survey::questions::Pace;
use crate::survey::{Front, Grid, Question, Survey};

/// Length of the pieces without a checksum, bytes.
const PIECE: usize = 1 << 20;
/// Short ranges are queried too, because one query covers many ranges.
const GRID: Grid = Grid { block: 1, short: 0 };

/// The expected data of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    Zeros,
    /// Data with this checksum.
    Sum(u64),
    /// Data with this BLAKE3.
    Blake3([u8; 32]),
    /// The data of the source, which is read again: ranges that another run has copied have no checksum.
    Source,
}

pub(crate) type Piece = (Range<u64>, Expected);

/// The device that is queried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// The next step of a verification.
#[derive(Debug)]
pub(crate) enum Step {
    /// This number of bytes needs no read, because the destination reports zeros, as expected.
    Verified(u64),
    /// A piece to read. The side is `Some` if that device has not reported yet whether the range holds data.
    Read(Piece, Option<Side>),
}

/// A device, its unknown ranges, and the queries to it.
#[derive(Debug)]
struct Asked {
    device: Option<Arc<dyn Device>>,
    unknown: RangeSet,
    survey: Survey,
}

/// The pieces still to be read back.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Pieces with a checksum.
    known: Peekable<IntoIter<Piece>>,
    /// Ranges that another run has copied, in which the source may have holes.
    earlier: Asked,
    /// Ranges that should read as zeros.
    zeros: Asked,
    longest: u64,
    answers: JoinSet<(Side, Question, DeviceResult<Vec<Extent>>)>,
}

impl Asked {
    fn new(device: Option<Arc<dyn Device>>, unknown: RangeSet, reads_holes: bool) -> Self {
        let survey = if reads_holes { Survey::unasked() } else { Survey::new(false) };
        Self { device, unknown, survey }
    }

    fn front(&self) -> Option<Front> {
        self.survey.front(&self.unknown)
    }

    fn is_awaited(&self) -> bool {
        self.survey.is_awaited(&self.unknown)
    }

    /// Cuts off the next range to read. Also returns whether it is unknown if the range holds data.
    fn cut_data(&mut self) -> Option<(Range<u64>, bool)> {
        let (range, is_blind) = self.survey.data(&self.unknown, PIECE, PIECE)?;
        self.survey.begin_read(&range, is_blind, &mut self.unknown);
        Some((range, is_blind))
    }
}

impl Pieces {
    /// Creates the pieces from parts with checksums, in ascending order, from ranges of zeros, and from ranges
    /// that another run has copied. With `reads_holes` neither device is queried where it holds data.
    pub(crate) fn new(
        source: Option<Arc<dyn Device>>,
        destination: Arc<dyn Device>,
        known: Vec<Piece>,
        [zeros, earlier]: [RangeSet; 2],
        reads_holes: bool,
    ) -> Self {
        let asked = zeros
            .iter()
            .chain(earlier.iter())
            .map(|range| (range.end - range.start).min(PIECE as u64));
        let longest = known.iter().map(|(range, _)| range.end - range.start).chain(asked).max();
        Self {
            known: known.into_iter().peekable(),
            earlier: Asked::new(source, earlier, reads_holes),
            zeros: Asked::new(Some(destination), zeros, reads_holes),
            longest: longest.unwrap_or(1),
            answers: JoinSet::new(),
        }
    }

    /// Returns the length of the longest piece.
    pub(crate) fn longest(&self) -> usize {
        usize::try_from(self.longest).unwrap_or(usize::MAX)
    }

    /// Returns whether the reads of all pieces have begun.
    pub(crate) fn is_over(&mut self) -> bool {
        let asked = [&self.earlier, &self.zeros];
        self.known.peek().is_none() && asked.iter().all(|asked| asked.front().is_none())
    }

    /// Returns the next step; `None` at the end, and while the result of a query is awaited.
    pub(crate) fn next(&mut self) -> Option<Step> {
        self.ask();
        let known = self.known.peek().map(|(range, _)| range.start);
        let [earlier, zeros] =
            [&self.earlier, &self.zeros].map(|asked| Some(asked.front()?.start()));
        let first = [known, earlier, zeros].into_iter().flatten().min()?;
        if known == Some(first) {
            return self.known.next().map(|piece| Step::Read(piece, None));
        }
        if earlier == Some(first) {
            let (range, is_blind) = self.earlier.cut_data()?;
            let blind = is_blind.then_some(Side::Source);
            return Some(Step::Read((range, Expected::Source), blind));
        }
        if let Some(told) = self.zeros.survey.cut_zeros(&mut self.zeros.unknown, u64::MAX) {
            return Some(Step::Verified(told.end - told.start));
        }
        let (range, is_blind) = self.zeros.cut_data()?;
        let blind = is_blind.then_some(Side::Destination);
        Some(Step::Read((range, Expected::Zeros), blind))
    }

    fn ask(&mut self) {
        let sides = [(Side::Source, &mut self.earlier), (Side::Destination, &mut self.zeros)];
        for (side, asked) in sides {
            let Asked { device, unknown, survey } = asked;
            while let Some(question) = survey.ask(unknown, GRID, Instant::now()) {
                let device = device.clone();
                self.answers.spawn(async move {
                    let Range { start, end } = question.range;
                    let told = match device {
                        Some(device) => device.extents(start, end - start).await,
                        None => Err(DeviceErrorKind::Unsupported.into()),
                    };
                    (side, question, told)
                });
            }
        }
    }

    /// Waits for the next result of a query and takes it; `None` if no query is in flight. The error is
    /// that of its task: a panic, or the end of the runtime.
    pub(crate) async fn answered(&mut self) -> Option<Result<(), JoinError>> {
        let (side, question, told) = match self.answers.join_next().await? {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        let Asked { unknown, survey, .. } = self.side(side);
        survey.take(&question, told, unknown, Instant::now());
        if side == Side::Source {
            // Takes all zeros together, because one query to the destination covers many ranges.
            let zeros = survey.take_zeros();
            self.zeros.unknown.extend(zeros);
        }
        Some(Ok(()))
    }

    /// Counts `bytes` bytes of a read that has ended. `blind` is the device (source or destination) for which it
    /// was unknown, when the read began, whether the range holds data; `None` if it was known, or need not be
    /// known.
    pub(crate) fn end_read(&mut self, bytes: u64, blind: Option<Side>) {
        for side in [Side::Source, Side::Destination] {
            self.side(side).survey.end_read(bytes, blind == Some(side));
        }
    }

    /// Records the state of reading. `Going`: reads wait for their turn; `Starved`: there is nothing to read
    /// yet; `Paused`: the verification is paused.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        for side in [Side::Source, Side::Destination] {
            let asked = self.side(side);
            // While reading waits for the results of one device only, that time is not a debt of the queries
            // to the other device: for these it counts as a pause.
            let is_to_blame = pace != Pace::Starved || asked.is_awaited();
            asked.survey.set_pace(Instant::now(), if is_to_blame { pace } else { Pace::Paused });
        }
    }

    fn side(&mut self, side: Side) -> &mut Asked {
        match side {
            Side::Source => &mut self.earlier,
            Side::Destination => &mut self.zeros,
        }
    }
}
