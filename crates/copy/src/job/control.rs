//! Orders to a copy that runs.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::progress::Progress;

/// What a copy shall do.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Order {
    Run,
    /// Begin nothing new.
    Pause,
    /// End what is under way, flush, and stop.
    Cancel,
    /// Stop at once.
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

    /// Begins no further read or write; requests in flight go on to their end.
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

    /// Returns whether it is paused, and not cancelled since.
    pub fn is_paused(&self) -> bool {
        self.order() == Order::Pause
    }

    /// Ends the copy in order: writes in flight are completed, and what was written is flushed. Reads in flight are given
    /// up.
    pub fn cancel(&self) {
        self.give(Order::Cancel);
    }

    /// Ends the copy immediately: data in flight may be written or not.
    pub fn abandon(&self) {
        self.give(Order::Abandon);
    }

    /// Sets the rate limit, bytes per second; `None` lifts it. It counts immediately, also while the copy runs, and for any
    /// ends.
    ///
    /// What is read from the source and what is written to the destination have the limit each, on average: a request passes
    /// whole, and the next one waits until its bytes are paid for. So a low rate wants short requests
    /// ([`with_io_size`](crate::CopyOptions::with_io_size)). Holes that are not read and zeros that the destination makes by
    /// itself cost nothing; what is read to compare [digests](crate::CopyOptions::with_digests) counts as read. A
    /// verification has the limit for what it reads back. 0 counts as 1: to stop, [pause](Self::pause).
    ///
    /// Each pass of [`Passes`](crate::Passes) has a control of its own. To make several copies share a rate, or to limit
    /// only what goes to a target, use a class of the initiator (`iscsi_initiator::Options::with_class`).
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

    /// Returns how far the copy has come.
    pub fn progress(&self) -> Progress {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No order takes one back that says more.
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

    /// Waits for an order that says at least this much.
    pub(crate) async fn at_least(&self, order: Order) {
        let mut orders = self.order.subscribe();
        // The sender lives as long as this.
        _ = orders.wait_for(|given| *given >= order).await;
    }

    /// Waits for another rate than this.
    pub(crate) async fn other_rate_than(&self, rate: Option<u64>) {
        let mut rates = self.rate.subscribe();
        _ = rates.wait_for(|given| *given != rate).await;
    }

    /// Waits for another order than this.
    pub(crate) async fn other_than(&self, order: Order) {
        let mut orders = self.order.subscribe();
        _ = orders.wait_for(|given| *given != order).await;
    }
}
