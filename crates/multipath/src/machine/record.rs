//! What a machine keeps of its disks, paths, requests and attempts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::output::{AttemptId, Command, DiskId};
use crate::durability::LossCount;
use crate::flushing::{FlushId, Question};
use crate::identity::Reasons;
use crate::ids::PathId;
use crate::ranges::RangeId;
use crate::reconnect::BackOff;
use crate::requests::{self, Requests};
use crate::slab::Secondary;
use crate::unit::Begun;

/// A user of the unit.
#[derive(Clone, Debug)]
pub(super) struct Disk<E> {
    pub(super) requests: Requests<E>,
    /// What is known of its requests beside that.
    pub(super) records: Secondary<Record>,
    /// The losses that it has reported.
    pub(super) seen: LossCount,
    pub(super) retry_timeout: Duration,
    pub(super) pauses: BackOff,
    /// It is removed once nothing of it is left.
    pub(super) is_leaving: bool,
}

/// A path that is not lost.
#[derive(Clone, Debug)]
pub(super) struct Path<E> {
    pub(super) disk: DiskId,
    /// Attempts that are not sent before the unit is recognized, in their order.
    pub(super) held: VecDeque<AttemptId>,
    /// Attempts that have ended with GOOD while the unit may have been another one, in their order.
    pub(super) unproven: VecDeque<AttemptId>,
    /// The question which unit it is, in flight.
    pub(super) question: Option<AttemptId>,
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

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Greater than that of all earlier requests.
    pub(super) order: u64,
    pub(super) spec: requests::RequestSpec,
    pub(super) range: Option<RangeId>,
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
