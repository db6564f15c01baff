//! Counts the progress of a copy, and reports its events.

pub(crate) mod checkpoint;
pub(crate) mod checkpoint_file;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// The progress of a copy. All numbers are bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The bytes to copy, if that is known.
    pub total: Option<u64>,
    /// Bytes that the destination has correctly, flushed or not.
    pub done: u64,
    /// Bytes that are done and flushed. This number never falls.
    pub flushed: u64,
    /// Bytes that the checkpoint of an earlier run records as done. They count as done.
    pub resumed: u64,
    /// Bytes of data that were read.
    pub read: u64,
    /// Bytes of data that were written; bytes written twice count twice.
    pub written: u64,
    /// Bytes that were zeroed at the destination.
    pub zeroed: u64,
    /// The part of `zeroed` that was sent as data, because the destination does not write zeros without data.
    pub zeros_written: u64,
    /// Bytes that were not sent because the destination had them already: zeros, and blocks with the same
    /// [digest](crate::Digests).
    pub skipped: u64,
    /// Bytes that were done, may be lost, and are to be copied again.
    pub lost: u64,
    /// Bytes that the medium of the source could not read, and that are omitted.
    pub unreadable: u64,
}

/// An event of a copy.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The progress has changed. This is reported at most every tenth of a second.
    Progress(Progress),
    /// A flush has covered more bytes.
    Flushed(Progress),
    /// The destination may have lost unflushed bytes; they are copied again.
    Lost {
        /// Number of bytes that may be lost.
        bytes: u64,
    },
    /// The medium of the source could not read these bytes; they are omitted.
    Unreadable {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A checkpoint, or digests, could not be saved; the next flush tries again. The text is the reason.
    NotSaved(String),
    /// An earlier run that was killed may still have requests in flight at the destination, which could
    /// overwrite the data of this run. The text is the reason why these requests could not be ended.
    NotEnded(String),
    /// Number of events that were dropped because the receiver was too slow.
    Missed(u64),
}

/// Number of events that wait for a receiver.
const BACKLOG: usize = 256;

/// The events of a copy, in the order in which they happened. A receiver that is more than 256 events late
/// loses the oldest events, and receives [`Event::Missed`].
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// Receives the next event; `None` after the last.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(Event::Missed(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Counts the progress, and sends the events to all receivers.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) progress: Progress,
    /// A copy of the progress, for [`Control::progress`](crate::Control::progress).
    shown: Arc<Mutex<Progress>>,
    events: broadcast::Sender<Event>,
    reported: Progress,
}

impl Reporter {
    pub(crate) fn new() -> Self {
        let events = broadcast::Sender::new(BACKLOG);
        let progress = Progress::default();
        Self { progress, shown: Arc::default(), events, reported: progress }
    }

    pub(crate) fn events(&self) -> Events {
        Events(self.events.subscribe())
    }

    pub(crate) fn shown(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.shown)
    }

    /// Updates the copy of the progress that other tasks can read.
    pub(crate) fn show(&self) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.progress;
    }

    /// Sends the progress as an event, if it has changed.
    pub(crate) fn report_progress(&mut self) {
        if self.progress != self.reported {
            self.reported = self.progress;
            self.report(Event::Progress(self.progress));
        }
    }

    pub(crate) fn report(&self, event: Event) {
        // Without a receiver the event is dropped.
        _ = self.events.send(event);
    }
}
