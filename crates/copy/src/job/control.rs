//! Orders to a running copy.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::progress::Progress;

/// The order that a copy follows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Order {
    Run,
    /// Begin nothing new.
    Pause,
    /// End the requests in flight, flush, and stop.
    Cancel,
    /// Stop immediately.
    Abandon,
}

/// Controls a copy or a verification, before it runs and while it does. Clones control the same one.
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

    /// Sets the rate limit, bytes per second; `None` lifts it. It takes effect immediately, even while the
    /// copy runs, and for any kind of ends.
    ///
    /// The limit applies to the reads of the source and to the writes to the destination separately, on
    /// average. Each request is sent as a whole, and the next one waits until its bytes fit in the rate: use
    /// short requests with a low rate ([`with_io_size`](crate::CopyOptions::with_io_size)). Holes that are
    /// not read, and zeros that the destination writes without data, do not count. Reads to compare
    /// [digests](crate::CopyOptions::with_digests) count. In a verification the limit applies to the data
    /// that is read back. 0 counts as 1: to stop, [pause](Self::pause).
    ///
    /// Each pass of [`Passes`](crate::Passes) has a control of its own. To make several copies share a rate,
    /// or to limit only the traffic to a target, use a class of the initiator
    /// (`iscsi_initiator::Options::with_class`).
    #[doc(alias = "throttle")]
    #[doc(alias = "bandwidth")]
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        let new = bytes_per_second.map(|rate| rate.max(1));
        self.rate.send_if_modified(|rate| std::mem::replace(rate, new) != new);
    }

    /// Returns the rate limit, bytes per second; `None` without one.
    pub fn rate(&self) -> Option<u64> {
        *self.rate.borrow()
    }

    /// Returns the present progress of the copy.
    pub fn progress(&self) -> Progress {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an order, unless a stronger one was given before.
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

    /// Waits for an order of at least this strength.
    pub(crate) async fn at_least(&self, order: Order) {
        let mut orders = self.order.subscribe();
        // The sender lives as long as `self`, so that the wait cannot fail.
        _ = orders.wait_for(|given| *given >= order).await;
    }

    /// Waits until the rate differs from this one.
    pub(crate) async fn other_rate_than(&self, rate: Option<u64>) {
        let mut rates = self.rate.subscribe();
        _ = rates.wait_for(|given| *given != rate).await;
    }

    /// Waits until the order differs from this one.
    pub(crate) async fn other_than(&self, order: Order) {
        let mut orders = self.order.subscribe();
        _ = orders.wait_for(|given| *given != order).await;
    }
}
