//! Reports the state of a disk to its handles and subscribers: its status, its waits, its events.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use tokio::time::Instant;
use tracing::{Metadata, Span};

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::events::disk_events::EventLog;
use crate::events::waiting::{WaitCause, Waiting};
use crate::multipath::disk_status::{DiskStatus, SessionsReason};
use crate::multipath::paths::status::{PathState, PathStatus};

/// Maximum number of notes in the status. The latest ones are kept.
const MAX_NOTES: usize = 16;
/// A wait of this length gets a note, and gets another note each time its length has doubled. A shorter
/// wait is reported only while it lasts.
const LONG: Duration = Duration::from_secs(10);

/// State of the reports that the paths and the handles of a disk share.
#[derive(Debug)]
pub(crate) struct Report {
    published: Mutex<Published>,
    /// Event log for subscribers, once the disk is open.
    events: OnceLock<Arc<EventLog>>,
    span: Span,
}

#[derive(Debug, Default)]
struct Published {
    /// Status, without the waits.
    status: DiskStatus,
    waits: Vec<WaitEntry>,
    next: u64,
}

/// A wait of the disk.
#[derive(Clone, Debug)]
struct WaitEntry {
    id: u64,
    since: Instant,
    limit: Option<Duration>,
    cause: WaitCause,
    /// The cause as a sentence. Two waits with the same sentence have the same cause.
    text: String,
    /// Time of the next try to reconnect.
    next_try: Option<Instant>,
    /// Length of the wait at which the next note is due, and the current note.
    next_note: Duration,
    note: Option<String>,
}

/// A wait of the disk. The wait is reported until this value is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    report: Arc<Report>,
    id: u64,
}

impl Report {
    /// Creates the report of the disk that `span` names.
    pub(crate) fn within(span: Span) -> Self {
        Self { published: Mutex::default(), events: OnceLock::new(), span }
    }

    /// Sends later events to the subscribers of `events`, because the disk is open.
    pub(crate) fn publish_to(&self, events: &Arc<EventLog>) {
        self.events.get_or_init(|| Arc::clone(events));
    }

    /// Returns the span for all log messages of the disk.
    pub(crate) const fn span(&self) -> &Span {
        &self.span
    }

    /// Logs something about the disk within its span. If the task already is in a span of this crate, that
    /// span is kept, because it is more specific.
    pub(super) fn log<R>(&self, log: impl FnOnce() -> R) -> R {
        let is_own = |span: &Metadata<'_>| span.target().starts_with(env!("CARGO_CRATE_NAME"));
        if Span::current().metadata().is_some_and(is_own) { log() } else { self.span.in_scope(log) }
    }

    pub(crate) fn get(&self) -> DiskStatus {
        let published = self.lock();
        let mut status = published.status.clone();
        // Many requests may wait for the same cause. Only the first one is listed, because it has waited
        // longest.
        for (at, wait) in published.waits.iter().enumerate() {
            if !published.waits.iter().take(at).any(|before| before.text == wait.text) {
                status.waits.push(wait.waiting());
            }
        }
        status
    }

    /// Returns the number of reconnects so far.
    pub(crate) fn reconnects(&self) -> u64 {
        self.lock().status.reconnects
    }

    /// Returns the lost sessions that are being reconnected.
    pub(crate) fn reconnecting(&self) -> Vec<PathStatus> {
        let published = self.lock();
        published.waits.iter().filter_map(WaitEntry::reconnecting).collect()
    }

    /// Changes the status.
    pub(super) fn with(&self, change: impl FnOnce(&mut DiskStatus)) {
        change(&mut self.lock().status);
    }

    /// Sets the status of a disk that will only have one session.
    pub(crate) fn set_one_session(&self, reason: SessionsReason) {
        self.with(|status| {
            (status.sessions, status.peak, status.wanted) = (1, 1, 1);
            status.reason = reason;
        });
    }

    /// Adds a note that no session was opened at a portal.
    pub(crate) fn pass_over(&self, portal: &TargetAddress, error: Option<&Error>) {
        self.add_note(DiskEvent::PortalPassedOver {
            portal: portal.clone(),
            error: error.cloned(),
        });
    }

    /// Replaces an old note by a new one.
    pub(super) fn replace_note(&self, old: Option<&str>, note: DiskEvent) {
        self.with(|status| status.notes.retain(|noted| Some(&*noted.to_string()) != old));
        self.add_note(note);
    }

    /// Adds a note of a problem once, even if many sessions have the problem.
    pub(crate) fn add_note_once(&self, note: DiskEvent) {
        let text = note.to_string();
        if !self.lock().status.notes.iter().any(|noted| noted.to_string() == text) {
            self.add_note(note);
        }
    }

    /// Publishes a problem that does not stop the disk, logs it, and adds it to the notes of the status.
    pub(crate) fn add_note(&self, note: DiskEvent) {
        self.log(|| tracing::warn!("{note}"));
        self.add_logged_note(note);
    }

    /// Publishes a problem that is already logged, and adds it to the notes of the status.
    pub(crate) fn add_logged_note(&self, note: DiskEvent) {
        let text = note.to_string();
        self.with(|status| {
            status.notes.retain(|noted| noted.to_string() != text);
            if status.notes.len() == MAX_NOTES {
                status.notes.remove(0);
            }
            status.notes.push(note.clone());
        });
        self.publish(&note);
    }

    /// Publishes an event to the subscribers. The event is neither logged nor noted in the status.
    pub(crate) fn publish(&self, event: &DiskEvent) {
        if let Some(events) = self.events.get() {
            events.publish(event);
        }
    }

    /// Reports a wait of up to `limit`, if a limit is given, until the result is dropped.
    pub(super) fn wait(self: &Arc<Self>, cause: WaitCause, limit: Option<Duration>) -> Wait {
        let (text, since) = (cause.to_string(), Instant::now());
        let mut published = self.lock();
        let id = published.next;
        published.next += 1;
        let (next_try, next_note, note) = (None, LONG, None);
        let entry = WaitEntry { id, since, limit, cause, text, next_try, next_note, note };
        published.waits.push(entry);
        Wait { report: Arc::clone(self), id }
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::within(Span::none())
    }
}

impl Wait {
    /// Sets the cause of the wait, which continues. A long wait gets a note.
    pub(super) fn set_cause(&self, cause: WaitCause) {
        let text = cause.to_string();
        let mut published = self.report.lock();
        let Published { status, waits, .. } = &mut *published;
        // Of many requests that wait for the same cause, only the first one adds notes.
        let is_published = waits.iter().any(|wait| wait.id < self.id && wait.text == text);
        let Some(wait) = waits.iter_mut().find(|wait| wait.id == self.id) else { return };
        (wait.cause, wait.text) = (cause, text);
        let elapsed = wait.since.elapsed();
        if is_published || elapsed < wait.next_note {
            return;
        }
        wait.next_note = elapsed * 2;
        let waiting = wait.waiting();
        let old = wait.note.replace(waiting.to_string());
        status.notes.retain(|note| Some(note.to_string()) != old);
        drop(published);
        self.report.add_note(DiskEvent::Waiting(waiting));
    }

    /// Sets when the next try to reconnect is due; `None` while one is in progress.
    pub(super) fn set_next_try(&self, at: Option<Instant>) {
        let mut published = self.report.lock();
        if let Some(wait) = published.waits.iter_mut().find(|wait| wait.id == self.id) {
            wait.next_try = at;
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut published = self.report.lock();
        let Some(at) = published.waits.iter().position(|wait| wait.id == self.id) else { return };
        let mut wait = published.waits.remove(at);
        if wait.note.is_none() {
            return;
        }
        // Another wait with the same cause takes over the note.
        if let Some(other) = published.waits.iter_mut().find(|other| other.text == wait.text) {
            (other.note, other.next_note) = (wait.note.take(), wait.next_note);
            return;
        }
        drop(published);
        self.report.publish(&DiskEvent::WaitOver(wait.waiting()));
    }
}

impl WaitEntry {
    fn waiting(&self) -> Waiting {
        Waiting { cause: self.cause.clone(), elapsed: self.since.elapsed(), limit: self.limit }
    }

    /// Returns the path that is being reconnected, if the wait is for a session.
    fn reconnecting(&self) -> Option<PathStatus> {
        let WaitCause::Reconnect { portal, key, lost, last_try } = &self.cause else { return None };
        let now = Instant::now();
        let state = PathState::Reconnecting {
            elapsed: self.since.elapsed(),
            next_try: self.next_try.map(|at| at.saturating_duration_since(now)),
            error: last_try.as_ref().unwrap_or(lost).clone(),
        };
        Some(PathStatus {
            portal: portal.clone(),
            key: *key,
            state,
            access: None,
            round_trip: None,
            requests_in_flight: 0,
            bytes_in_flight: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::Status;
    use tokio::time::advance;

    use super::*;
    use crate::error::UnitCause;

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_shows_while_it_lasts_and_is_noted_if_it_lasts_long() {
        let report = Arc::new(Report::default());
        let limit = Some(Duration::from_secs(60));
        let log = Arc::<EventLog>::default();
        report.publish_to(&log);
        let mut events = log.subscribe();
        let busy = Error::from(UnitCause::Status { command: "READ (16)", status: Status::BUSY });
        let busy = || WaitCause::UnitRefuses { error: busy.clone() };
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
            waits.iter().for_each(|wait| wait.set_cause(busy()));
            let text = |seconds| format!("the unit answers BUSY ({seconds} s so far, up to 60 s)");
            let waits = report.get().waits;
            let shown: Vec<_> = waits.iter().map(Waiting::to_string).collect();
            assert_eq!(shown, [text(seconds)]);
            assert_eq!(waits[0].elapsed, Duration::from_secs(seconds));
            let notes: Vec<_> = noted.map(text).into_iter().collect();
            let found = report.get().notes;
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, notes, "a note takes the place of the one before");
        }
        drop(waits);
        assert!(report.get().waits.is_empty());
        assert_eq!(report.get().notes.len(), 1);
        for seconds in [10, 20] {
            let event = events.next().await;
            let Some(DiskEvent::Waiting(waiting)) = event else { panic!("{event:?}") };
            assert_eq!(waiting.elapsed, Duration::from_secs(seconds));
        }
        let event = events.next().await;
        let Some(DiskEvent::WaitOver(waiting)) = event else { panic!("{event:?}") };
        assert_eq!(waiting.limit, limit);
        log.end();
        assert!(events.next().await.is_none(), "three requests waited for the same");
    }
}
