//! Reports about the paths of a disk, for people.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use tokio::time::Instant;
use tracing::{Metadata, Span};

use crate::error::Error;
use crate::multipath::spread::{Spread, Waiting};
use crate::url::portal_name;

/// The latest notes tell enough.
const MAX_NOTES: usize = 16;
/// What is waited for so long is worth a note, and a new one whenever it has doubled; before, it shows
/// only while it lasts.
const LONG: Duration = Duration::from_secs(10);

/// What the paths and the handles of a disk share of what there is to tell.
#[derive(Debug)]
pub(crate) struct Report {
    told: Mutex<Told>,
    span: Span,
}

#[derive(Debug, Default)]
struct Told {
    spread: Spread,
    waits: Vec<WaitEntry>,
    next: u64,
}

/// Something that is waited for.
#[derive(Clone, Debug)]
struct WaitEntry {
    id: u64,
    since: Instant,
    limit: Option<Duration>,
    what: String,
    /// When it is worth the next note, and the one that there is.
    next_note: Duration,
    note: Option<String>,
}

/// Reports that something is waited for, until this is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    report: Arc<Report>,
    id: u64,
}

impl Report {
    /// A report on the disk that the span names.
    pub(crate) fn within(span: Span) -> Self {
        Self { told: Mutex::default(), span }
    }

    /// Around what is logged of the disk.
    pub(crate) const fn span(&self) -> &Span {
        &self.span
    }

    /// Logs something of the disk, whoever does it: a task of its own, which says more of itself, or a
    /// caller's.
    pub(super) fn log<R>(&self, log: impl FnOnce() -> R) -> R {
        let is_own = |span: &Metadata<'_>| span.target().starts_with(env!("CARGO_CRATE_NAME"));
        if Span::current().metadata().is_some_and(is_own) { log() } else { self.span.in_scope(log) }
    }

    pub(crate) fn get(&self) -> Spread {
        let told = self.lock();
        let mut spread = told.spread.clone();
        // Many requests wait for the same; the first has waited longest.
        for (at, wait) in told.waits.iter().enumerate() {
            if !told.waits.iter().take(at).any(|before| before.what == wait.what) {
                spread.waits.push(wait.waiting());
            }
        }
        spread
    }

    /// Changes the report.
    pub(super) fn with(&self, change: impl FnOnce(&mut Spread)) {
        change(&mut self.lock().spread);
    }

    /// The disk has one session and keeps to it.
    pub(crate) fn settle_for_one(&self, reason: &str) {
        self.with(|spread| {
            (spread.sessions, spread.peak) = (1, 1);
            reason.clone_into(&mut spread.reason);
        });
    }

    /// A session was not opened there.
    pub(crate) fn pass_over(&self, portal: &TargetAddress, error: Option<&Error>) {
        let portal = portal_name(portal);
        self.note(match error {
            Some(error) => format!("portal {portal} was passed over: {error}"),
            None => format!("portal {portal} was passed over: another one answered sooner"),
        });
    }

    /// The target gives its sessions no handle.
    pub(crate) fn no_tsih(&self) {
        let note = "the target gives its sessions no TSIH: a write of a lost session may continue after the \
                    reconnect, and nothing reports when it has ended, so other data for those blocks is not written";
        self.note(note.to_owned());
    }

    /// Notes something in place of what was noted of it before.
    pub(super) fn note_instead(&self, old: Option<String>, note: String) {
        self.with(|spread| spread.notes.retain(|told| Some(told) != old.as_ref()));
        self.note(note);
    }

    /// Notes what many sessions may meet.
    pub(crate) fn note_once(&self, note: String) {
        if !self.lock().spread.notes.contains(&note) {
            self.note(note);
        }
    }

    pub(crate) fn note(&self, note: String) {
        self.log(|| tracing::warn!("{note}"));
        self.note_logged(note);
    }

    /// Notes what the log has already.
    pub(crate) fn note_logged(&self, note: String) {
        self.with(|spread| {
            spread.notes.retain(|old| *old != note);
            if spread.notes.len() == MAX_NOTES {
                spread.notes.remove(0);
            }
            spread.notes.push(note);
        });
    }

    /// Something is waited for from now on, for so long at most if there is a limit.
    pub(super) fn wait(self: &Arc<Self>, what: String, limit: Option<Duration>) -> Wait {
        let mut told = self.lock();
        let id = told.next;
        told.next += 1;
        let since = Instant::now();
        told.waits.push(WaitEntry { id, since, limit, what, next_note: LONG, note: None });
        Wait { report: Arc::clone(self), id }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::within(Span::none())
    }
}

impl Wait {
    /// Still waiting, as it looks now for that. Now and then a note is made of it.
    pub(super) fn say(&self, what: String) {
        let mut told = self.report.lock();
        let Told { spread, waits, .. } = &mut *told;
        // Of many requests that wait for the same the first speaks for all.
        let is_told = waits.iter().any(|wait| wait.id < self.id && wait.what == what);
        let Some(wait) = waits.iter_mut().find(|wait| wait.id == self.id) else { return };
        wait.what = what;
        let elapsed = wait.since.elapsed();
        if is_told || elapsed < wait.next_note {
            return;
        }
        wait.next_note = elapsed * 2;
        let old = wait.note.replace(wait.waiting().to_string());
        spread.notes.retain(|note| Some(note) != old.as_ref());
        let note = wait.waiting().to_string();
        drop(told);
        self.report.note(note);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.report.lock().waits.retain(|wait| wait.id != self.id);
    }
}

impl WaitEntry {
    fn waiting(&self) -> Waiting {
        Waiting { reason: self.what.clone(), elapsed: self.since.elapsed(), limit: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_shows_while_it_lasts_and_is_noted_if_it_lasts_long() {
        let report = Arc::new(Report::default());
        let limit = Some(Duration::from_secs(60));
        let busy = || "the unit answers BUSY".to_owned();
        let mut waits = Vec::new();
        for _ in 0..3 {
            waits.push(report.wait(busy(), limit));
            advance(Duration::from_secs(3)).await;
        }
        for (seconds, noted) in
            [(9, None), (10, Some(10)), (19, Some(10)), (20, Some(20)), (39, Some(20))]
        {
            let begun = report.lock().waits[0].since;
            advance(begun + Duration::from_secs(seconds) - Instant::now()).await;
            waits.iter().for_each(|wait| wait.say(busy()));
            let text = |seconds| format!("the unit answers BUSY ({seconds} s so far, up to 60 s)");
            let waits = report.get().waits;
            let shown: Vec<_> = waits.iter().map(Waiting::to_string).collect();
            assert_eq!(shown, [text(seconds)]);
            assert_eq!(waits[0].elapsed, Duration::from_secs(seconds));
            let notes: Vec<_> = noted.map(text).into_iter().collect();
            assert_eq!(report.get().notes, notes, "a note takes the place of the one before");
        }
        drop(waits);
        assert!(report.get().waits.is_empty());
        assert_eq!(report.get().notes.len(), 1);
    }
}
