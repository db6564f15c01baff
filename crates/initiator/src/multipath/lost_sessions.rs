//! What becomes of lost sessions: they are opened anew, and what they have left is settled.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::dispatch::Paths;
use crate::multipath::event::Event;
use crate::multipath::path::Path;
use crate::multipath::reinstatement::{Lost, NotBack};
use crate::multipath::supervisor::{Supervisor, outcome, span_of};

impl Supervisor {
    /// A lost session is back.
    pub(super) fn reopened(&mut self, paths: &Paths<Path>, lost: Lost, path: Path) {
        self.report.with(|spread| spread.reopened += 1);
        self.note_return(paths);
        let is_settled = lost.settle_by(&path);
        self.join(paths, path);
        if is_settled {
            self.settlement_ended(lost, Ok(()));
        } else {
            self.settle_otherwise(lost);
        }
    }

    /// A lost session does not come back. Whatever its login reached, if it came to one, need not be
    /// where the lost one was.
    pub(super) fn not_reopened(&mut self, paths: &Paths<Path>, lost: Lost, not_back: NotBack) {
        let outlasts = self.outlasts(&not_back);
        let why = not_back.why;
        if outlasts && paths.open().is_empty() {
            return self.outlast(paths, lost, why);
        }
        let note = format!("a lost session did not come back: {why}");
        self.note_of(&lost, note);
        self.refusal = Some(why.clone());
        if paths.open().is_empty() && self.reopening == 0 {
            let end = Box::new(lost.why().clone());
            self.settlement_ended(lost, Err(why.clone()));
            paths.end(&Error::NotReopened { lost: end, why: Box::new(why) });
        } else {
            self.settle_otherwise(lost);
        }
    }

    /// The login of a lost session has not settled what that has left.
    pub(super) fn settle_otherwise(&mut self, lost: Lost) {
        let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
        let span = span_of(lost.path());
        let settlement = async move {
            let result = opener.settle(&lost, expected).await;
            Event::Settled(lost, result)
        };
        self.events.spawn(settlement.instrument(span));
    }

    /// What a lost session has left is settled, or it is not yet: where a network or a target was gone for
    /// long, they may come back.
    pub(super) fn settlement_ended(&mut self, lost: Lost, result: Result<(), Error>) {
        let key = lost.path().unit.session().key();
        self.lost.retain(|path| path.unit.session().key() != key);
        if lost.path().unit.session().is_settled() {
            self.unsettled = self.unsettled.take().filter(|_| !self.given_up.is_empty());
            return;
        }
        let why = result.err().unwrap_or_else(|| lost.why().clone());
        if self.unsettled.is_none() {
            let note = format!("nothing proves what became of the writes of a lost session: {why}");
            self.note_of(&lost, note);
        }
        self.unsettled = Some(why);
        self.given_up.push(lost);
        self.settle_next = Instant::now() + self.max_pause();
    }

    /// Notes something of a lost session.
    pub(super) fn note_of(&self, lost: &Lost, note: String) {
        span_of(lost.path()).in_scope(|| self.report.note(note));
    }

    /// Between two tries to settle what was given up.
    pub(super) fn max_pause(&self) -> Duration {
        self.opener.node.options().advanced.reconnect_pauses.max_pause
    }

    /// When it is to be looked whether a write waits for what was given up: it may be one of another disk, of which
    /// nobody tells, or have come before the last try.
    pub(super) fn looks_at_waiting(&self) -> Option<Instant> {
        let at = self.settle_next.max(self.look_at_waiting);
        (!self.given_up.is_empty()).then_some(at)
    }

    /// Whether a write waits for what was given up. If none does, the next look is a pause later.
    pub(super) fn is_waited_for(&mut self) -> bool {
        self.look_at_waiting = Instant::now() + self.max_pause();
        self.given_up.iter().any(|lost| lost.path().unit.session().is_waited_for())
    }

    /// Tries once more to settle what was not.
    pub(super) fn settle_again(&mut self) {
        for lost in std::mem::take(&mut self.given_up) {
            self.lost.push(lost.path().clone());
            self.settle_otherwise(lost);
        }
    }

    /// Whether there are tries to settle what lost sessions have left, or sessions leave with something that is not
    /// settled.
    pub(super) fn is_settling(&self) -> bool {
        self.lost.iter().chain(&self.leaving).any(|path| !path.unit.session().is_settled())
    }

    pub(super) fn reopen_lost(&mut self, paths: &Paths<Path>) {
        for (path, why) in paths.take_lost() {
            self.reopen(path, why);
        }
    }

    pub(super) fn reopen(&mut self, path: Path, why: Error) {
        let span = span_of(&path);
        span.in_scope(|| self.report.note(format!("a session was lost: {why}")));
        self.lost.push(path.clone());
        self.try_to_reopen(Lost::new(path, why));
    }

    /// It may have been tried before.
    pub(super) fn try_to_reopen(&mut self, lost: Lost) {
        let span = span_of(lost.path());
        let (opener, expected) = (Arc::clone(&self.opener), self.expected.clone());
        self.reopening += 1;
        let reopening = async move {
            let (path, why) = (lost.path().clone(), lost.why().clone());
            let since = lost.at();
            let reopened = async move { opener.reopen(&path, &why, since, expected).await };
            let reopened = Box::pin(reopened);
            let path = outcome(reopened).await.unwrap_or(Err(NotBack::yet(Error::Closed)));
            Event::Again(lost, path)
        };
        self.events.spawn(reopening.instrument(span));
    }
}
