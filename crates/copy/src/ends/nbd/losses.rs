//! Counts the lost connections with which writes may be lost.
//!
//! Design: `docs/design/nbd-outages.md`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// The losses of all connections of a device.
///
/// A server that has restarted may have lost writes that were answered and not flushed, and the protocol does
/// not report that. So each lost connection with such a write counts as a loss, and every handle of the
/// device reports it at its next flush.
#[derive(Debug, Default)]
pub(super) struct Losses {
    count: AtomicU64,
    /// Number of losses that any handle has reported.
    reported: AtomicU64,
    /// Whether a reply has arrived since [`has_answered`](Self::has_answered) was last called.
    has_answered: AtomicBool,
    /// Notified when a connection is lost.
    news: Notify,
}

impl Losses {
    /// Records a lost connection; `is_loss` if the server had answered changes over it that no flush has
    /// covered.
    pub(super) fn record_lost_connection(&self, is_loss: bool) {
        if is_loss {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.news.notify_one();
    }

    /// Waits until a connection is lost; returns immediately if one was lost since the last wait.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    pub(super) fn record_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Returns whether a reply to any request has arrived since the last call.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.swap(false, Ordering::Relaxed)
    }
}

/// The number of losses that one handle has reported.
#[derive(Debug, Default)]
pub(super) struct ReportedLosses(AtomicU64);

impl ReportedLosses {
    /// Creates the state of a new handle, which does not report losses that any handle has reported before.
    pub(super) fn further(&self, losses: &Losses) -> Self {
        Self(AtomicU64::new(self.count().max(losses.reported.load(Ordering::Relaxed))))
    }

    /// Returns the number of losses that this handle has reported.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets the number to `since`, its value when a change began, so that losses reported since then are
    /// reported again. The change was in flight at such a report, so its caller does not know that the change
    /// may be lost too.
    pub(super) fn overtaken(&self, since: u64) {
        self.0.fetch_min(since, Ordering::Relaxed);
    }

    /// Returns whether there is a loss that this handle has not reported, and marks all losses as reported.
    pub(super) fn is_news(&self, losses: &Losses) -> bool {
        let count = losses.count.load(Ordering::Relaxed);
        let is_news = self.0.swap(count, Ordering::Relaxed) < count;
        if is_news {
            losses.reported.fetch_max(count, Ordering::Relaxed);
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
        let first = ReportedLosses::default();
        let second = first.further(&losses);
        losses.record_lost_connection(false);
        assert!(!first.is_news(&losses));
        losses.record_lost_connection(true);
        let third = first.further(&losses);
        losses.record_lost_connection(true);
        assert!(first.is_news(&losses) && !first.is_news(&losses));
        assert!(second.is_news(&losses) && third.is_news(&losses));
        assert!(!second.further(&losses).is_news(&losses));
        losses.record_lost_connection(true);
        assert!(first.is_news(&losses) && second.is_news(&losses));
    }
}
