//! How far a copy has come, and what happens on the way.

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
    /// What is at the destination as it shall be; it may have to be flushed yet.
    pub done: u64,
    /// What is done and flushed. It never falls.
    pub flushed: u64,
    /// What was there before this run, by a checkpoint. It counts as done.
    pub resumed: u64,
    /// Data that were read.
    pub read: u64,
    /// Data that were written; what was written twice counts twice.
    pub written: u64,
    /// What was made zero at the destination.
    pub zeroed: u64,
    /// The part of it that went to the destination as data, because it does not make zeros by itself.
    pub zeros_written: u64,
    /// What was not sent because it was there already: zeros, and blocks by their
    /// [digests](crate::Digests).
    pub skipped: u64,
    /// What was done, and may be lost, and is done again.
    pub lost: u64,
    /// What the medium of the source did not give, and is left out.
    pub unreadable: u64,
}

/// An event of a copy.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The copy has come further: reported after each tenth of a second in which it has.
    Progress(Progress),
    /// A flush has covered more.
    Flushed(Progress),
    /// The destination may have lost bytes that were not flushed; they are copied again.
    Lost {
        /// Bytes.
        bytes: u64,
    },
    /// The medium of the source does not give these bytes; they are left out.
    Unreadable {
        /// The first of them.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// A checkpoint, or digests, could not be written, and why; the next flush tries again.
    NotSaved(String),
    /// An earlier run that was killed may still have requests in flight at the destination, which may change what this one
    /// writes; and why that could not be ruled out.
    NotEnded(String),
    /// This many events were dropped, because they were not received in time.
    Missed(u64),
}

/// So many events wait for somebody who asks.
const BACKLOG: usize = 256;

/// The events of a copy, in order. A receiver that falls behind by 256 events loses the oldest, and receives
/// [`Event::Missed`].
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

/// What counts, and tells.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(crate) progress: Progress,
    /// The same for those who look from outside.
    shown: Arc<Mutex<Progress>>,
    events: broadcast::Sender<Event>,
    told: Progress,
}

impl Teller {
    pub(crate) fn new() -> Self {
        let events = broadcast::Sender::new(BACKLOG);
        let progress = Progress::default();
        Self { progress, shown: Arc::default(), events, told: progress }
    }

    pub(crate) fn events(&self) -> Events {
        Events(self.events.subscribe())
    }

    pub(crate) fn shown(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.shown)
    }

    /// Shows the numbers.
    pub(crate) fn show(&self) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.progress;
    }

    /// Tells of progress, if there is any.
    pub(crate) fn tell_progress(&mut self) {
        if self.progress != self.told {
            self.told = self.progress;
            self.tell(Event::Progress(self.progress));
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        // Nobody need listen.
        _ = self.events.send(event);
    }
}
