//! Records of disks, paths, requests and attempts.

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

/// A disk: one user of the unit.
#[derive(Clone, Debug)]
pub(super) struct Disk<E> {
    pub(super) requests: Requests<E>,
    /// State of each request that `requests` does not have.
    pub(super) records: Secondary<Record>,
    /// The number of losses that the disk has reported.
    pub(super) seen: LossCount,
    pub(super) retry_timeout: Duration,
    pub(super) pauses: BackOff,
    /// Whether the disk is to be removed, after its paths and attempts have ended.
    pub(super) is_leaving: bool,
}

/// A path that is not lost.
#[derive(Clone, Debug)]
pub(super) struct Path<E> {
    pub(super) disk: DiskId,
    /// Attempts that wait until the unit is identified, in order.
    pub(super) held: VecDeque<AttemptId>,
    /// Attempts that have ended with GOOD while the unit may have been another one, in order.
    pub(super) unproven: VecDeque<AttemptId>,
    /// The identification over this path, while it is in flight.
    pub(super) question: Option<AttemptId>,
    /// When the identification is repeated, because the previous one had no result; `None` if no repetition is
    /// due.
    pub(super) ask_at: Option<Instant>,
    /// Number of consecutive identifications without a result.
    pub(super) unanswered: u32,
    /// The error of the requests over this path, if it leads to another unit.
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
    /// Order of submission; it grows with each request.
    pub(super) order: u64,
    pub(super) spec: requests::RequestSpec,
    pub(super) range: Option<RangeId>,
    /// The number of losses that the disk had reported when the request was submitted.
    pub(super) seen: LossCount,
}

/// Purpose of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Request {
        engine: requests::AttemptId,
        writes: bool,
    },
    /// A command of a flush.
    Flush(FlushId, Question),
    Identify(Reasons),
}

/// Progress of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Progress {
    /// The attempt waits until the unit is identified.
    Held,
    Sent(Begun),
    /// The attempt has ended with GOOD, which is trusted only after the unit is identified.
    Unproven(Begun),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Order of creation; it grows with each attempt.
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
