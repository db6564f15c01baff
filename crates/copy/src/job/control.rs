//! Controls a running copy: pause, cancel, abandon, and the rate limit.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::progress::Progress;

/// The command that a copy follows; a later variant is stronger.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Order {
    Run,
    /// Begin no new request.
    Pause,
    /// Wait for the requests in flight, flush, and stop.
    Cancel,
    /// Stop immediately.
    Abandon,
}

/// Controls a copy or a verification, before and while it runs. Clones control the same copy or verification.
#[derive(Clone, Debug)]
pub struct Control {
    order: Arc<watch::Sender<Order>>,
    rate: Arc<watch::Sender<Option<u64>>>,
    shown: Arc<Mutex<Progress>>,
}

impl Control {
    pub(crate) fn new(shown: Arc<Mutex<Progress>>) -> Self {
        Self { order: Arc::new(watch::Sender::new(Order::Run)), rate: Arc::default(), shown }
    }

    /// Pauses the copy: no further read or write begins; requests in flight complete.
    pub fn pause(&self) {
        self.give(Order::Pause);
    }

    /// Continues after a [pause](Self::pause).
    pub fn resume(&self) {
        self.order.send_if_modified(|order| {
            let is_paused = *order == Order::Pause;
            if is_paused {
                *order = Order::Run;
            }
            is_paused
        });
    }

    /// Returns whether the copy is paused, and not cancelled since then.
    pub fn is_paused(&self) -> bool {
        self.order() == Order::Pause
    }

    /// Cancels the copy: writes in flight complete, and everything written is flushed. Reads in flight are
    /// dropped.
    pub fn cancel(&self) {
        self.give(Order::Cancel);
    }

    /// Stops the copy immediately: data in flight may or may not be written.
    pub fn abandon(&self) {
        self.give(Order::Abandon);
    }

    /// Sets the rate limit, bytes per second; `None` removes it. It takes effect immediately, even while the
    /// copy runs, for any kind of source and destination.
    ///
    /// The limit is an average, and applies to the reads of the source and to the writes to the destination
    /// separately. Each request is sent as a whole, and the next one waits until its bytes fit in the rate:
    /// use short requests with a low rate ([`with_io_size`](crate::CopyOptions::with_io_size)). Holes that are
    /// not read do not count, nor do zeros that the destination writes without data. Reads to compare
    /// [digests](crate::CopyOptions::with_digests) count. In a verification the limit applies to the data that
    /// is read back. 0 counts as 1: to stop, [pause](Self::pause).
    ///
    /// Each pass of [`Passes`](crate::Passes) has its own control. To make several copies share a rate,
    /// or to limit only the traffic to a target, use a class of the initiator
    /// (`iscsi_initiator::Options::with_class`).
    #[doc(alias = "throttle")]
    #[doc(alias = "bandwidth")]
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        let new = bytes_per_second.map(|rate| rate.max(1));
        self.rate.send_if_modified(|rate| std::mem::replace(rate, new) != new);
    }

    /// Returns the rate limit, bytes per second; `None` if there is no limit.
    pub fn rate(&self) -> Option<u64> {
        *self.rate.borrow()
    }

    /// Returns the current progress of the copy.
    pub fn progress(&self) -> Progress {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the command, unless a stronger one was set before.
    fn give(&self, new: Order) {
        self.order.send_if_modified(|order| {
            let is_new = new > *order;
            *order = new.max(*order);
            is_new
        });
    }

    pub(crate) fn order(&self) -> Order {
        *self.order.borrow()
    }

    /// Waits until a command of at least this strength is set.
    pub(crate) async fn at_least(&self, order: Order) {
        let mut orders = self.order.subscribe();
        // The sender lives as long as `self`, so that the wait cannot fail.
        _ = orders.wait_for(|given| *given >= order).await;
    }

    /// Waits until the rate limit differs from `rate`.
    pub(crate) async fn other_rate_than(&self, rate: Option<u64>) {
        let mut rates = self.rate.subscribe();
        _ = rates.wait_for(|given| *given != rate).await;
    }

    /// Waits until the command differs from `order`.
    pub(crate) async fn other_than(&self, order: Order) {
        let mut orders = self.order.subscribe();
        _ = orders.wait_for(|given| *given != order).await;
    }
}
