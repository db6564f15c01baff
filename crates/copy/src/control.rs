//! The hand on a copy that runs.

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

/// The hand on a copy: clones are the same.
#[derive(Clone, Debug)]
pub struct Control {
    order: Arc<watch::Sender<Order>>,
    shown: Arc<Mutex<Progress>>,
}

impl Control {
    pub(crate) fn new(shown: Arc<Mutex<Progress>>) -> Self {
        Self { order: Arc::new(watch::Sender::new(Order::Run)), shown }
    }

    /// Begins no further read or write; what is under way goes on to its end.
    pub fn pause(&self) {
        self.give(Order::Pause);
    }

    /// Goes on after a [pause](Self::pause).
    pub fn resume(&self) {
        self.order.send_if_modified(|order| {
            let is_paused = *order == Order::Pause;
            if is_paused {
                *order = Order::Run;
            }
            is_paused
        });
    }

    /// Whether it is paused, and not cancelled since.
    pub fn is_paused(&self) -> bool {
        self.order() == Order::Pause
    }

    /// Ends the copy in order: what is under way goes on to its end and is flushed.
    pub fn cancel(&self) {
        self.give(Order::Cancel);
    }

    /// Ends the copy at once: what is under way may be written or not.
    pub fn abandon(&self) {
        self.give(Order::Abandon);
    }

    /// How far the copy has come.
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

    /// Waits for another order than this.
    pub(crate) async fn other_than(&self, order: Order) {
        let mut orders = self.order.subscribe();
        _ = orders.wait_for(|given| *given != order).await;
    }
}
