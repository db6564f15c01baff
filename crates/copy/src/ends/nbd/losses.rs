//! What goes with a connection that is lost.
//!
//! Why it is so: `docs/design/nbd-outages.md`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// What the connections of a device have lost.
///
/// A server that has restarted may have forgotten what it had answered and not flushed, and nothing tells whether it has.
/// So each connection that goes with such an answer is a loss, and every handle of the device is told of it, at a flush.
#[derive(Debug, Default)]
pub(super) struct Losses {
    count: AtomicU64,
    /// The losses that some handle has told.
    told: AtomicU64,
    /// A server has answered since that was last asked.
    has_answered: AtomicBool,
    /// A connection is lost.
    news: Notify,
}

impl Losses {
    /// A connection is lost; with it what no flush had covered, if there was such.
    pub(super) fn lose(&self, is_loss: bool) {
        if is_loss {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.news.notify_one();
    }

    /// Waits until a connection is lost, unless one was since that was waited for last.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    pub(super) fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Whether any request was answered since that was last asked.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.swap(false, Ordering::Relaxed)
    }
}

/// The losses that one handle has told.
#[derive(Debug, Default)]
pub(super) struct Told(AtomicU64);

impl Told {
    /// For a further handle: what some handle has told is no news to whoever makes one now.
    pub(super) fn further(&self, losses: &Losses) -> Self {
        Self(AtomicU64::new(self.count().max(losses.told.load(Ordering::Relaxed))))
    }

    /// How many losses this handle has told.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// What this handle has told since it had told so [many](Self::count) is news again: a change was in flight, and has
    /// returned now.
    pub(super) fn overtaken(&self, since: u64) {
        self.0.fetch_min(since, Ordering::Relaxed);
    }

    /// Whether there is a loss that this handle has not told; from now on it has.
    pub(super) fn is_news(&self, losses: &Losses) -> bool {
        let count = losses.count.load(Ordering::Relaxed);
        let is_news = self.0.swap(count, Ordering::Relaxed) < count;
        if is_news {
            losses.told.fetch_max(count, Ordering::Relaxed);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_tells_of_a_loss_once_and_a_new_one_of_those_that_nobody_has_told() {
        let losses = Losses::default();
        let first = Told::default();
        let second = first.further(&losses);
        losses.lose(false);
        assert!(!first.is_news(&losses));
        losses.lose(true);
        let third = first.further(&losses);
        losses.lose(true);
        assert!(first.is_news(&losses) && !first.is_news(&losses));
        assert!(second.is_news(&losses) && third.is_news(&losses));
        assert!(!second.further(&losses).is_news(&losses));
        losses.lose(true);
        assert!(first.is_news(&losses) && second.is_news(&losses));
    }
}
