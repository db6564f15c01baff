//! Values and counts that change, and whose change many wait for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that one publishes and many wait for. They are woken in the order in which they began to wait,
/// which `tokio::sync::watch` leaves to chance: a simulation could not be repeated.
#[derive(Debug)]
pub(crate) struct Published<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Published<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        self.lock().clone()
    }

    pub(crate) fn set(&self, value: T) {
        *self.lock() = value;
        self.changed.notify_waiters();
    }

    /// Waits until something is found in the value.
    pub(crate) async fn find<R>(&self, find: impl Fn(&T) -> Option<R>) -> R {
        loop {
            // What is published from here on is noticed.
            let changed = self.changed.notified();
            if let Some(found) = find(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A count that many wait for to grow. To read it takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Count {
    value: AtomicU64,
    grown: Notify,
}

impl Count {
    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    pub(crate) fn grow(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        self.grown.notify_waiters();
    }

    /// Waits until it exceeds `seen`.
    pub(crate) async fn beyond(&self, seen: u64) {
        loop {
            // What comes from here on is noticed.
            let grown = self.grown.notified();
            if self.get() > seen {
                return;
            }
            grown.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_in_order_once_the_value_is_there() {
        let value = Arc::new(Published::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        for number in 0..40 {
            let (value, order) = (Arc::clone(&value), Arc::clone(&order));
            waiting.spawn(async move {
                assert_eq!(value.find(|value| (*value > 1).then_some(*value)).await, 2);
                order.lock().unwrap().push(number);
            });
        }
        yield_now().await;
        value.set(1);
        yield_now().await;
        assert_eq!((value.get(), order.lock().unwrap().len()), (1, 0));
        value.set(2);
        while waiting.join_next().await.is_some() {}
        assert!(order.lock().unwrap().is_sorted());
        assert_eq!(value.find(|value| Some(*value)).await, 2, "who comes later need not wait");
    }

    #[tokio::test]
    async fn who_waits_for_a_number_goes_on_once_it_has_grown() {
        let count = Arc::new(Count::default());
        count.grow();
        let seen = count.get();
        count.beyond(seen - 1).await;
        let waiting = tokio::spawn({
            let count = Arc::clone(&count);
            async move { count.beyond(seen).await }
        });
        yield_now().await;
        assert!(!waiting.is_finished());
        count.grow();
        waiting.await.unwrap();
    }
}
