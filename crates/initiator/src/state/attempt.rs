//! Tracks an attempt of a disk's request, from when its session takes it until its command has ended.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::BytesMut;
use iscsi_multipath::requests::{AttemptId, RequestId};
use iscsi_multipath::{Begun, PathId};
use iscsi_pdu::scsi::Lun;
use iscsi_session::Completion;
use tokio::time::Instant;

use crate::error::Error;
use crate::state::counters::RequestKind;
use crate::state::unit_lock::{UnitGuard, UnitLock};

/// Tasks to wake when no lock of a unit is held. Usually there is one task.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Wakers {
    first: Option<Waker>,
    others: Vec<Waker>,
}

/// One attempt: the command of a request that is sent over one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempted {
    pub(crate) request: RequestId,
    pub(crate) attempt: AttemptId,
    pub(crate) path: PathId,
    /// Kind of the request for statistics, and the number of bytes that it moves.
    pub(crate) kind: RequestKind,
    pub(crate) len: u64,
    /// Whether the command has a shorter form.
    pub(crate) can_shorten: bool,
}

/// Result of the command of an attempt.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The known unit has executed the command.
    Good(Completion),
    /// The unit has executed the command, but its identity must be confirmed before the result counts. The
    /// attempt has not ended yet.
    Unproven(Begun, Box<Completion>),
    /// Another unit may have executed the command. Contains the buffer of the command.
    AnotherUnit(BytesMut),
    /// The command has failed. Contains its buffer.
    Failed(Error, BytesMut),
    /// The session has ended, and has not taken the command.
    NotTaken,
}

/// The requests of a disk, to which sessions report the ends of attempts.
pub(crate) trait Requester: Debug + Send + Sync {
    /// Returns whether a request waits for the end of the attempt.
    fn is_awaited(&self, unit: &UnitGuard<'_>, attempt: AttemptId) -> bool;

    /// Returns whether this path has completed nothing for long, while the disk has answers over another portal.
    fn others_answer(&self, path: PathId) -> bool;

    /// Handles the end of an attempt's command. Releases the lock, and returns the tasks to wake.
    fn ended(
        self: Arc<Self>,
        unit: UnitGuard<'_>,
        attempted: &Attempted,
        ended: Ended,
        now: Instant,
    ) -> Wakers;
}

/// Reports the end of an attempt to the disk, once. The reference is weak, so that a session does not keep
/// its disk alive.
#[derive(Debug)]
pub(crate) struct AttemptReport {
    pub(crate) requester: Weak<dyn Requester>,
    pub(crate) attempted: Attempted,
    pub(crate) lun: Lun,
}

impl Wakers {
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.first.is_some() => self.others.push(waker),
            Some(waker) => self.first = Some(waker),
            None => {}
        }
    }

    pub(crate) fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
            self.others.into_iter().for_each(Waker::wake);
        }
    }
}

impl AttemptReport {
    /// Returns whether the path of the attempt has completed nothing for long, while the disk has answers over
    /// another portal.
    pub(crate) fn others_answer(&self) -> bool {
        let requester = self.requester.upgrade();
        requester.is_some_and(|requester| requester.others_answer(self.attempted.path))
    }

    /// Reports the result of the attempt, if the disk still exists.
    pub(crate) fn end(self, unit: &UnitLock, ended: Ended, now: Instant) {
        if let Some(requester) = self.requester.upgrade() {
            let wakers = requester.ended(unit.lock(), &self.attempted, ended, now);
            wakers.wake();
        }
    }
}
