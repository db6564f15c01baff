//! Finds out which bytes of a device hold data, by extent queries.
//!
//! ```text
//!  unknown ──► asked ──► known: data, zeros
//!     │          │         │
//!     └──────────┴─────────┴──► begun, in order: read, made zero, or skipped
//! ```
//! The caller's set has the unknown ranges. Ranges that are asked (a query is in flight), or known and not
//! begun, are removed from it.

pub(crate) mod blocks;
pub(crate) mod questions;
mod segment;

use std::collections::BTreeMap;
use std::ops::Range;

use iscsi_block_device::{DeviceResult, Extent, RangeSet};
use tokio::time::Instant;

use blocks::whole_blocks;
use questions::{Answer, Pace, Questions};
use segment::{Segment, segments};

/// Number of ranges, known or with a query in flight, at which no further query is sent, unless the next
/// range is unknown. Also the largest number of ranges in one query.
const ENOUGH: usize = 1024;

/// The lengths to which queries are rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Size of the blocks that are read as a whole; 1 without blocks.
    pub(crate) block: u64,
    /// A separate range of at most this length is not queried, because reading it takes no longer.
    pub(crate) short: u64,
}

/// An extent query to the device.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    number: u64,
    block: u64,
    begun: Instant,
    /// From the first to the last wanted byte; the range may contain bytes that are not wanted.
    pub(crate) range: Range<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Part of the query with this number, which is in flight.
    Asked(u64),
    Data,
    Zeros,
}

/// The next range, and what is known about it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Front {
    Data(Range<u64>),
    Zeros(Range<u64>),
    /// A query is in flight, or still to be sent.
    Unknown(Range<u64>),
}

impl Front {
    /// Returns the offset of the first byte.
    pub(crate) const fn start(&self) -> u64 {
        let (Self::Data(range) | Self::Zeros(range) | Self::Unknown(range)) = self;
        range.start
    }
}

/// The known ranges of a device, and the queries to it.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Ranges that are known, or whose query is in flight: first byte, byte after the last one, and state.
    pieces: BTreeMap<u64, (u64, State)>,
    questions: Questions,
    /// Number of the next query.
    next: u64,
    /// Number of reads in flight whose ranges are unknown.
    blind: usize,
    /// Current position of a stream; `None` at its end, and for a device.
    stream: Option<u64>,
}

impl Survey {
    pub(crate) const fn new(is_stream: bool) -> Self {
        let stream = if is_stream { Some(0) } else { None };
        let questions = Questions::new();
        Self { pieces: BTreeMap::new(), questions, next: 0, blind: 0, stream }
    }

    /// Creates the survey of a device that is not queried: all of it counts as data, and is read.
    pub(crate) fn unasked() -> Self {
        Self { questions: Questions::none(), ..Self::new(false) }
    }

    /// Returns whether no range remains that is known or whose query is in flight, and no part of a stream.
    /// Queries in flight whose results are not needed any more do not count.
    pub(crate) fn is_over(&self) -> bool {
        self.pieces.is_empty() && self.stream.is_none()
    }

    /// Returns the position of a stream.
    pub(crate) const fn stream(&self) -> Option<u64> {
        self.stream
    }

    /// Advances the position of a stream by `len` bytes.
    pub(crate) const fn advance(&mut self, len: u64) {
        if let Some(at) = &mut self.stream {
            *at += len;
        }
    }

    /// Records that the stream has ended.
    pub(crate) const fn end_stream(&mut self) {
        self.stream = None;
    }

    /// Returns the next query, if one should be sent.
    pub(crate) fn ask(
        &mut self,
        unknown: &mut RangeSet,
        grid: Grid,
        now: Instant,
    ) -> Option<Question> {
        self.put_short(unknown, grid);
        let first = unknown.first()?;
        let is_next = self.pieces.first_key_value().is_none_or(|(at, _)| first.start < *at);
        let skip = self.questions.skip();
        let is_urgent = is_next && skip == 0;
        if !self.questions.has_room() || !is_urgent && self.pieces.len() >= ENOUGH {
            return None;
        }
        let from = first.start.saturating_add(skip);
        let from = from - from % grid.block;
        let start = unknown.ranges_from(from.max(first.start)).next()?.start;
        let end = start.saturating_add(self.questions.window().max(grid.block));
        let end = end - end % grid.block;
        let wanted = unknown.ranges_from(start).take_while(|range| range.start < end).take(ENOUGH);
        let wanted: Vec<_> = wanted.map(|range| range.start..range.end.min(end)).collect();
        let range = start..wanted.last()?.end;
        for wanted in wanted {
            unknown.remove(&wanted);
            self.pieces.insert(wanted.start, (wanted.end, State::Asked(self.next)));
        }
        self.questions.begin();
        self.next += 1;
        Some(Question { number: self.next - 1, block: grid.block, begun: now, range })
    }

    /// Marks ranges that are too short for a query as data. The rest of a longer range whose beginning a
    /// query has covered does not count as short.
    fn put_short(&mut self, unknown: &mut RangeSet, grid: Grid) {
        while let Some(range) = unknown.first()
            && range.end - range.start <= grid.short
            && self.pieces.len() < ENOUGH
            && !self.pieces.contains_key(&range.end)
            && !self.is_known_before(range.start)
        {
            unknown.remove(&range);
            self.pieces.insert(range.start, (range.end, State::Data));
        }
    }

    /// Returns whether the byte before `at` is known, or its query is in flight.
    fn is_known_before(&self, at: u64) -> bool {
        self.pieces.range(..at).next_back().is_some_and(|(_, (end, _))| *end == at)
    }

    /// Takes the result of a query. Ranges that the result does not cover become unknown again; ranges whose
    /// read has begun meanwhile are not changed.
    pub(crate) fn take(
        &mut self,
        question: &Question,
        told: DeviceResult<Vec<Extent>>,
        unknown: &mut RangeSet,
        now: Instant,
    ) {
        let Question { block, ref range, .. } = *question;
        let (extents, error) = match told {
            Ok(extents) => (extents, None),
            // A failed query does not end the copy: its range counts as data, and the read of the range
            // reports the cause.
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut found = segments(&extents, range.clone());
        if block > 1 {
            found = whole_blocks(found, range, block);
        }
        let covered = found.last().map_or(range.start, |last| last.range.end);
        let spared = self.put(question, &found, covered, unknown);
        let took = now.saturating_duration_since(question.begun);
        let asked = range.end - range.start;
        match error {
            Some(error) => self.questions.fail(&error, took, asked),
            None => {
                let (covered, extents) = (covered - range.start, found.len());
                self.questions.end(Answer { took, asked, covered, extents, spared });
            }
        }
    }

    /// Replaces the ranges of a query with the extents that its result reports, and returns the number of
    /// their bytes that are zeros.
    fn put(
        &mut self,
        question: &Question,
        found: &[Segment],
        covered: u64,
        unknown: &mut RangeSet,
    ) -> u64 {
        let asked: Vec<_> = self
            .pieces
            .range(question.range.clone())
            .filter(|(_, (_, state))| *state == State::Asked(question.number))
            .map(|(start, (end, _))| *start..*end)
            .collect();
        let (mut found, mut spared) = (found.iter().peekable(), 0);
        for piece in asked {
            self.pieces.remove(&piece.start);
            unknown.insert(piece.start.max(covered).min(piece.end)..piece.end);
            while let Some(Segment { range, is_zero }) = found.peek() {
                let part = range.start.max(piece.start)..range.end.min(piece.end);
                if !part.is_empty() {
                    let state = if *is_zero { State::Zeros } else { State::Data };
                    spared += if *is_zero { part.end - part.start } else { 0 };
                    self.pieces.insert(part.start, (part.end, state));
                }
                if range.end > piece.end {
                    break;
                }
                found.next();
            }
        }
        spared
    }

    /// Returns zeros to the survey that were cut off from it, and must wait.
    pub(crate) fn put_back(&mut self, zeros: &RangeSet) {
        self.pieces.extend(zeros.iter().map(|range| (range.start, (range.end, State::Zeros))));
    }

    /// Returns the range with the lowest offset that is not begun.
    pub(crate) fn front(&self, unknown: &RangeSet) -> Option<Front> {
        let piece = self.pieces.first_key_value();
        let asked_next =
            unknown.first().filter(|next| piece.is_none_or(|(at, _)| next.start < *at));
        if let Some(next) = asked_next {
            return Some(Front::Unknown(next));
        }
        let (start, (end, state)) = piece?;
        let range = *start..*end;
        Some(match state {
            State::Asked(_) => Front::Unknown(range),
            State::Data => Front::Data(range),
            State::Zeros => Front::Zeros(range),
        })
    }

    /// Returns the range to read next, at most `len` bytes, up to a multiple of `grid`; and whether it is
    /// unknown if the range holds data.
    pub(crate) fn data(
        &self,
        unknown: &RangeSet,
        len: usize,
        grid: usize,
    ) -> Option<(Range<u64>, bool)> {
        let (range, is_blind) = match self.front(unknown)? {
            Front::Data(range) => (range, false),
            Front::Unknown(range) if self.questions.allow_blind(self.blind) => (range, true),
            Front::Unknown(_) | Front::Zeros(_) => return None,
        };
        let aligned = range.start - range.start % grid as u64 + len as u64;
        Some((range.start..range.end.min(aligned), is_blind))
    }

    /// Begins a range, so that it is removed from the survey and from the unknown ranges.
    pub(crate) fn begin(&mut self, range: &Range<u64>, unknown: &mut RangeSet) {
        match self.pieces.remove(&range.start) {
            Some((end, state)) if end > range.end => {
                self.pieces.insert(range.end, (end, state));
            }
            Some(_) => {}
            None => unknown.remove(range),
        }
    }

    /// Begins a read of a range. `is_blind`: it is unknown if the range holds data.
    pub(crate) fn begin_read(
        &mut self,
        range: &Range<u64>,
        is_blind: bool,
        unknown: &mut RangeSet,
    ) {
        self.blind += usize::from(is_blind);
        self.begin(range, unknown);
    }

    /// Counts `bytes` bytes of a read that has ended.
    pub(crate) fn end_read(&mut self, bytes: u64, is_blind: bool) {
        self.blind -= usize::from(is_blind);
        self.questions.read(bytes, is_blind);
    }

    /// Cuts off the next range if it is zeros, at most `len` bytes of it.
    pub(crate) fn cut_zeros(&mut self, unknown: &mut RangeSet, len: u64) -> Option<Range<u64>> {
        let Some(Front::Zeros(range)) = self.front(unknown) else { return None };
        let range = range.start..range.end.min(range.start.saturating_add(len));
        self.begin(&range, unknown);
        Some(range)
    }

    /// Removes and returns all zeros that are known and not begun.
    pub(crate) fn take_zeros(&mut self) -> Vec<Range<u64>> {
        let zeros = self.pieces.iter().filter(|(_, (_, state))| *state == State::Zeros);
        let zeros: Vec<_> = zeros.map(|(start, (end, _))| *start..*end).collect();
        zeros.iter().for_each(|range| _ = self.pieces.remove(&range.start));
        zeros
    }

    /// Returns whether nothing can be read before the result of a query arrives.
    pub(crate) fn is_awaited(&self, unknown: &RangeSet) -> bool {
        let is_unknown = matches!(self.front(unknown), Some(Front::Unknown(_)));
        is_unknown && self.questions.are_under_way() && !self.questions.allow_blind(0)
    }

    /// Records the state of reading from `now` on.
    pub(crate) fn set_pace(&mut self, now: Instant, pace: Pace) {
        self.questions.set_pace(now, pace);
    }
}

#[cfg(test)]
mod tests {

    use iscsi_block_device::{DeviceErrorKind, ExtentState};

    use super::*;

    const GRID: Grid = Grid { block: 1, short: 8 };

    fn zero(at: u64, len: u64) -> Extent {
        Extent::new(at, len, ExtentState::Deallocated)
    }

    fn data(at: u64, len: u64) -> Extent {
        Extent::new(at, len, ExtentState::Data)
    }

    /// Returns a survey, its unknown ranges, and the time.
    fn survey(unknown: impl Into<RangeSet>) -> (Survey, RangeSet, Instant) {
        (Survey::new(false), unknown.into(), Instant::now())
    }

    /// Begins and returns the next ranges in ascending order, as long as their state is known.
    fn fronts(survey: &mut Survey, unknown: &mut RangeSet) -> Vec<(Range<u64>, bool)> {
        let mut fronts = Vec::new();
        while let Some(front) = survey.front(unknown) {
            let (range, is_zero) = match front {
                Front::Data(range) => (range, false),
                Front::Zeros(range) => (range, true),
                Front::Unknown(_) => break,
            };
            survey.begin(&range, unknown);
            fronts.push((range, is_zero));
        }
        fronts
    }

    #[test]
    fn reads_end_on_the_grid_of_the_requests() {
        let (mut survey, mut unknown, now) = survey(5..100);
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        survey.take(&question, Ok(vec![data(5, 95)]), &mut unknown, now);
        let cut = std::iter::from_fn(|| {
            let (data, is_blind) = survey.data(&unknown, 32, 16)?;
            assert!(!is_blind);
            survey.begin_read(&data, is_blind, &mut unknown);
            Some(data)
        });
        let cut: Vec<_> = cut.collect();
        assert_eq!(cut, [5..32, 32..64, 64..96, 96..100]);
        assert!(survey.is_over());
    }

    #[test]
    fn one_question_is_about_many_ranges() {
        let (mut survey, mut unknown, now) =
            survey(RangeSet::from_iter([0..100, 200..210, 300..400]));
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        assert_eq!((question.range.clone(), unknown.is_empty()), (0..400, true));
        let told = vec![zero(0, 50), data(50, 155), zero(205, 120), data(325, 25)];
        survey.take(&question, Ok(told), &mut unknown, now);
        assert_eq!(unknown, (350..400).into(), "the answer has ended there");
        let known = [
            (0..50, true),
            (50..100, false),
            (200..205, false),
            (205..210, true),
            (300..325, true),
            (325..350, false),
        ];
        assert_eq!(fronts(&mut survey, &mut unknown), known);
    }

    /// A short separate range counts as data without a query; the rest of a range that a query has cut is
    /// queried.
    #[test]
    fn a_short_range_is_data_unless_it_is_the_rest_of_a_longer_one() {
        let (mut survey, mut unknown, now) = survey(RangeSet::from_iter([0..8, 20..28, 40..60]));
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        assert_eq!(question.range, 40..60);
        survey.take(&question, Ok(vec![zero(40, 15)]), &mut unknown, now);
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        assert_eq!(question.range, 55..60);
        let known = [(0..8, false), (20..28, false), (40..55, true)];
        assert_eq!(fronts(&mut survey, &mut unknown), known);
        assert_eq!(survey.front(&unknown), Some(Front::Unknown(55..60)));
    }

    #[test]
    fn what_was_begun_meanwhile_is_not_begun_again() {
        let (mut survey, mut unknown, now) = survey(0..1 << 40);
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        survey.begin_read(&(0..30), true, &mut unknown);
        assert!(!survey.is_over());
        survey.take(
            &question,
            Ok(vec![zero(0, 20), data(20, 40), zero(60, 10)]),
            &mut unknown,
            now,
        );
        assert_eq!(unknown, (70..1 << 40).into());
        let known = [(30..60, false), (60..70, true)];
        let mut nothing = RangeSet::new();
        assert_eq!(fronts(&mut survey, &mut nothing), known);
    }

    /// If the query fails, the range counts as data.
    #[test]
    fn no_answer_is_no_hole() {
        let (mut survey, mut unknown, now) = survey(0..100);
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        survey.take(&question, Err(DeviceErrorKind::Other.into()), &mut unknown, now);
        assert_eq!(fronts(&mut survey, &mut unknown), [(0..100, false)]);
        assert!(survey.is_over());
    }

    #[test]
    fn zeros_that_come_back_are_in_their_place() {
        let (mut survey, mut unknown, now) = survey(0..100);
        let question = survey.ask(&mut unknown, GRID, now).unwrap();
        survey.take(&question, Ok(vec![zero(0, 50), data(50, 50)]), &mut unknown, now);
        assert_eq!(survey.cut_zeros(&mut unknown, 20), Some(0..20));
        assert_eq!(survey.cut_zeros(&mut unknown, 100), Some(20..50));
        assert_eq!(survey.cut_zeros(&mut unknown, 100), None);
        survey.put_back(&RangeSet::from(0..50));
        assert_eq!(survey.take_zeros().first(), Some(&(0..50)));
        assert_eq!(fronts(&mut survey, &mut unknown), [(50..100, false)]);
    }
}
