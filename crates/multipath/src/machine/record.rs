//! What a machine keeps of its disks, paths, requests and attempts.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::output::{Command, DiskId};
use crate::durability::LossCount;
use crate::flushing::{FlushId, Question};
use crate::identity::Reasons;
use crate::ids::PathId;
use crate::ranges::RangeId;
use crate::reconnect::BackOff;
use crate::requests::{self, Requests};
use crate::slab::Key;
use crate::unit::Begun;

/// A user of the unit.
#[derive(Clone, Debug)]
pub(super) struct Disk<E> {
    pub(super) requests: Requests<E>,
    /// The requests and attempts of the engine by its own names.
    pub(super) by_request: BTreeMap<requests::RequestId, Key>,
    pub(super) by_attempt: BTreeMap<requests::AttemptId, Key>,
    /// The losses that it has reported.
    pub(super) seen: LossCount,
    pub(super) retry_timeout: Duration,
    pub(super) pauses: BackOff,
    /// Why it refuses requests.
    pub(super) refusal: Option<E>,
    /// It is removed once nothing of it is left.
    pub(super) is_leaving: bool,
}

/// A path that is not lost.
#[derive(Clone, Debug)]
pub(super) struct Path<E> {
    pub(super) disk: DiskId,
    /// Attempts that are not sent before the unit is recognized, in their order.
    pub(super) held: VecDeque<Key>,
    /// Attempts that have ended with GOOD while the unit may have been another one, in their order.
    pub(super) unproven: VecDeque<Key>,
    /// The question which unit it is, in flight.
    pub(super) question: Option<Key>,
    /// When it is asked again, after a question that was not answered.
    pub(super) ask_at: Option<Instant>,
    /// Questions in a row that were not answered.
    pub(super) unanswered: u32,
    /// The path leads to another unit.
    pub(super) verdict: Option<E>,
}

impl<E> Path<E> {
    pub(super) const fn new(disk: DiskId) -> Self {
        Self {
            disk,
            held: VecDeque::new(),
            unproven: VecDeque::new(),
            question: None,
            ask_at: None,
            unanswered: 0,
            verdict: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Place {
    /// It waits for its range.
    InLine,
    /// The engine has it.
    Engine(requests::RequestId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Greater than that of all earlier requests.
    pub(super) order: u64,
    pub(super) disk: DiskId,
    pub(super) spec: requests::RequestSpec,
    pub(super) range: Option<RangeId>,
    pub(super) place: Place,
    /// The losses that its disk had reported when it was submitted.
    pub(super) seen: LossCount,
}

/// What an attempt is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Request {
        engine: requests::AttemptId,
        writes: bool,
    },
    /// This question of a flush.
    Flush(FlushId, Question),
    Identify(Reasons),
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Progress {
    /// It is not sent before the unit is recognized.
    Held,
    Sent(Begun),
    /// It has ended with GOOD, and the unit has to be recognized before that counts.
    Unproven(Begun),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Greater than that of all earlier attempts.
    pub(super) order: u64,
    pub(super) disk: DiskId,
    pub(super) path: PathId,
    pub(super) what: What,
    pub(super) command: Command,
    pub(super) progress: Progress,
    pub(super) range: Option<RangeId>,
}

impl Attempt {
    pub(super) const fn begun(&self) -> Option<&Begun> {
        match &self.progress {
            Progress::Held => None,
            Progress::Sent(begun) | Progress::Unproven(begun) => Some(begun),
        }
    }
}
