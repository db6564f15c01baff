//! What a verification reads back, in the order of the device.
//!
//! Where zeros are expected, the destination is asked whether it reads as zeros there; of what another run has
//! copied, the source is asked as well. Reading goes on meanwhile.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use iscsi_block_device::{Device, DeviceErrorKind, DeviceResult, Extent, RangeSet};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::survey::questions::Pace;
use crate::survey::{Front, Grid, Question, Survey};

/// What has no checksum is read back in pieces of so many bytes.
const PIECE: usize = 1 << 20;
/// One question is about many runs, however short they are.
const GRID: Grid = Grid { block: 1, short: 0 };

/// What is to be read back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    Zeros,
    /// Data with this checksum.
    Sum(u64),
    /// Data with this BLAKE3.
    Blake3([u8; 32]),
    /// What the source holds: there is no checksum of what another run has read.
    Source,
}

pub(crate) type Piece = (Range<u64>, Expected);

/// Who is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// So many bytes are as they should be, by the word of the destination.
    Told(u64),
    /// A piece to be read; and whose answer was not waited for.
    Read(Piece, Option<Side>),
}

/// A device, and what it is asked.
#[derive(Debug)]
struct Asked {
    device: Option<Arc<dyn Device>>,
    unknown: RangeSet,
    survey: Survey,
}

/// What is still to be read back.
#[derive(Debug)]
pub(crate) struct ReadBack {
    /// What has a checksum.
    known: Peekable<IntoIter<Piece>>,
    /// What another run has copied, of which the source may hold no data.
    earlier: Asked,
    /// What should be zero.
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

    /// The next data, or what may be; whether nothing is known of it.
    fn cut_data(&mut self) -> Option<(Range<u64>, bool)> {
        let (range, is_blind) = self.survey.data(&self.unknown, PIECE, PIECE)?;
        self.survey.begin_read(&range, is_blind, &mut self.unknown);
        Some((range, is_blind))
    }
}

impl ReadBack {
    /// Pieces with checksums, in order; zeros; and what another run has copied. With `reads_holes` neither end is asked where
    /// it holds data.
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

    /// The longest piece.
    pub(crate) fn longest(&self) -> usize {
        usize::try_from(self.longest).unwrap_or(usize::MAX)
    }

    /// Whether all has been begun.
    pub(crate) fn is_over(&mut self) -> bool {
        let asked = [&self.earlier, &self.zeros];
        self.known.peek().is_none() && asked.iter().all(|asked| asked.front().is_none())
    }

    /// What comes next; `None` at the end, and as long as an answer is waited for.
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
            return Some(Step::Told(told.end - told.start));
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

    /// Takes the next answer; `None` if nothing is asked.
    pub(crate) async fn answered(&mut self) -> Option<Result<(), JoinError>> {
        let (side, question, told) = match self.answers.join_next().await? {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        let Asked { unknown, survey, .. } = self.side(side);
        survey.take(&question, told, unknown, Instant::now());
        if side == Side::Source {
            // All at once: one question to the destination is about many runs.
            let zeros = survey.take_zeros();
            self.zeros.unknown.extend(zeros);
        }
        Some(Ok(()))
    }

    /// A read has brought so many bytes.
    pub(crate) fn end_read(&mut self, bytes: u64, blind: Option<Side>) {
        for side in [Side::Source, Side::Destination] {
            self.side(side).survey.end_read(bytes, blind == Some(side));
        }
    }

    /// From now on reads wait for their turn (`Going`), for an order, or for something to read.
    pub(crate) fn note(&mut self, pace: Pace) {
        for side in [Side::Source, Side::Destination] {
            let asked = self.side(side);
            let is_to_blame = pace != Pace::Starved || asked.is_awaited();
            asked.survey.note(Instant::now(), if is_to_blame { pace } else { Pace::Paused });
        }
    }

    fn side(&mut self, side: Side) -> &mut Asked {
        match side {
            Side::Source => &mut self.earlier,
            Side::Destination => &mut self.zeros,
        }
    }
}
