//! Questions to the unit of an idle disk ([`Options::poll`](crate::Options::poll)).
//!
//! A unit reports a change at the next command of each session and not before (SAM-5 §5.14), so an idle disk hears of
//! none. One TEST UNIT READY for each interval, over one session, is such a command.

use std::time::Duration;

use iscsi_multipath::CommandNumber;
use iscsi_pdu::scsi::{Cdb, SenseKey};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::PathId;
use crate::multipath::path::Path;
use crate::state::budget::Budget;
use crate::unit::logical_unit::LogicalUnit;

/// When the unit of an idle disk is asked next.
#[derive(Debug)]
pub(super) struct IdlePoll {
    /// `None` asks never.
    interval: Option<Duration>,
    next: Instant,
    /// The next command of each session when it was looked last: as long as it is the next one, none was sent.
    seen: Vec<(PathId, CommandNumber)>,
    /// The question that is under way.
    question: Option<AbortHandle>,
}

impl IdlePoll {
    pub(super) fn new(interval: Option<Duration>) -> Self {
        let next = Instant::now() + interval.unwrap_or_default();
        Self { interval, next, seen: Vec::new(), question: None }
    }

    /// When to look whether the disk is idle. Never while a question is under way.
    pub(super) fn wakes(&self) -> Option<Instant> {
        (self.interval.is_some() && self.question.is_none()).then_some(self.next)
    }

    /// The unit to ask now, through one of its sessions, if no command was sent over any session for an interval.
    pub(super) fn due(&mut self, paths: &Paths<Path>) -> Option<LogicalUnit> {
        let interval = self.interval?;
        if self.question.is_some() || Instant::now() < self.next {
            return None;
        }
        self.next = Instant::now() + interval;
        let before = std::mem::replace(&mut self.seen, next_commands(paths));
        let is_idle = before == self.seen && paths.open().iter().all(|(_, path)| answered(path));
        if !is_idle || paths.look_again() {
            return None;
        }
        let (_, path) = paths.in_use().into_iter().next()?;
        Some(path.unit.clone())
    }

    /// The unit is being asked.
    pub(super) fn begin(&mut self, question: AbortHandle) {
        self.question = Some(question);
    }

    /// Nobody needs the answer any more. A logout waits for all that is under way, so a question that stays without an answer would
    /// keep the disk from ending.
    pub(super) fn give_up(&mut self) {
        if let Some(question) = self.question.take() {
            question.abort();
        }
    }

    /// The question has ended. What it has sent is no work of the disk.
    pub(super) fn ended(&mut self, paths: &Paths<Path>) {
        self.question = None;
        self.next = Instant::now() + self.interval.unwrap_or_default();
        self.seen = next_commands(paths);
    }
}

fn next_commands(paths: &Paths<Path>) -> Vec<(PathId, CommandNumber)> {
    let open = paths.open().into_iter();
    open.map(|(id, path)| (id, path.unit.state().next_command())).collect()
}

fn answered(path: &Path) -> bool {
    let state = path.unit.state();
    state.lock().is_idle(state.path())
}

/// Lets the unit report what it has to, and asks what follows from it: which unit it is, how large it is now. Takes no part of the
/// budget of requests, and counts as none.
///
/// # Errors
/// When the unit does not take the question, or the session ends.
pub(super) async fn hear_of_changes(unit: LogicalUnit) -> Result<(), Error> {
    let asking = unit.with_questions(Budget::new(1, 1));
    // Several reports may wait in the unit, each of which takes the place of an answer.
    for _ in 0..=unit.session().policy().retry.max_attentions {
        let answer = asking.execute(unit.command(Cdb::test_unit_ready())).await;
        match answer {
            Err(error) if is_report(&error) => {}
            answer => {
                unit.recognized().await?;
                return answer.map(drop);
            }
        }
    }
    unit.recognized().await
}

/// Whether the unit has reported something in place of an answer (SAM-5 §5.14, SPC-4 §4.5.5).
fn is_report(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.deferred || sense.key == SenseKey::UnitAttention)
}
