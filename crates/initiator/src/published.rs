//! Publishes a value that tasks can wait for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value that one task publishes and other tasks wait for. Tasks are woken in the order in which they began
/// to wait. With `tokio::sync::watch` that order is random, so a simulation could not be repeated.
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

    /// Waits until `find` returns a result for the value, and returns that result.
    pub(crate) async fn find<R>(&self, find: impl Fn(&T) -> Option<R>) -> R {
        loop {
            // The future is created before the check, so that a change after the check is noticed.
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
}
