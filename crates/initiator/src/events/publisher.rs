//! Publishes values to subscribers, which receive them at their own pace.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// Maximum number of values that wait for a slow subscriber.
pub(crate) const CAPACITY: usize = 64;

/// Values that were published since the subscription, and not received yet.
#[derive(Debug)]
pub(crate) struct Subscription<T>(Arc<Mutex<Queue<T>>>);

#[derive(Debug)]
struct Queue<T> {
    values: VecDeque<T>,
    missed: u64,
    has_ended: bool,
    waker: Option<Waker>,
}

/// Publishes values until it is dropped.
#[derive(Debug)]
pub(crate) struct Publisher<T>(Mutex<Subscribers<T>>);

#[derive(Debug)]
struct Subscribers<T> {
    queues: Vec<Weak<Mutex<Queue<T>>>>,
    has_ended: bool,
}

impl<T> Subscription<T> {
    /// Polls for the next value; `Ready(None)` after the last value.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut queue = lock(&self.0);
        if let Some(value) = queue.values.pop_front() {
            return Poll::Ready(Some(value));
        }
        if queue.has_ended {
            return Poll::Ready(None);
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns the number of values that were dropped because they were not received in time. The dropped
    /// values are older than all values that wait.
    pub(crate) fn missed(&self) -> u64 {
        lock(&self.0).missed
    }
}

impl<T> Publisher<T> {
    /// Subscribes to later values.
    pub(crate) fn subscribe(&self) -> Subscription<T> {
        let mut subscribers = lock(&self.0);
        let queue = Queue {
            values: VecDeque::new(),
            missed: 0,
            has_ended: subscribers.has_ended,
            waker: None,
        };
        let queue = Arc::new(Mutex::new(queue));
        subscribers.queues.retain(|queue| queue.strong_count() > 0);
        subscribers.queues.push(Arc::downgrade(&queue));
        Subscription(queue)
    }

    /// Publishes a value, unless `merge` returns that the value repeats a value that waits.
    pub(crate) fn publish_merged(&self, value: &T, merge: impl Fn(&mut VecDeque<T>, &T) -> bool)
    where
        T: Clone,
    {
        self.for_each(|queue| {
            if merge(&mut queue.values, value) {
                return;
            }
            if queue.values.len() >= CAPACITY {
                queue.values.pop_front();
                queue.missed += 1;
            }
            queue.values.push_back(value.clone());
        });
    }

    pub(crate) fn publish(&self, value: &T)
    where
        T: Clone,
    {
        self.publish_merged(value, |_, _| false);
    }

    /// Ends the subscriptions: no more values will be published.
    pub(crate) fn end(&self) {
        lock(&self.0).has_ended = true;
        self.for_each(|queue| queue.has_ended = true);
    }

    fn for_each(&self, change: impl Fn(&mut Queue<T>)) {
        let queues: Vec<_> = lock(&self.0).queues.iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            let waker = {
                let mut queue = lock(&queue);
                change(&mut queue);
                queue.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Default for Publisher<T> {
    fn default() -> Self {
        Self(Mutex::new(Subscribers { queues: Vec::new(), has_ended: false }))
    }
}

impl<T> Drop for Publisher<T> {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn next(subscription: &mut Subscription<u8>) -> Option<u8> {
        poll_fn(|context| subscription.poll_next(context)).await
    }

    #[tokio::test]
    async fn a_subscriber_receives_all_from_its_beginning_to_the_end() {
        let publisher = Publisher::default();
        publisher.publish(&0);
        let mut first = publisher.subscribe();
        let mut second = publisher.subscribe();
        publisher.publish(&1);
        publisher.publish(&2);
        publisher.end();
        assert_eq!(next(&mut first).await, Some(1));
        assert_eq!(next(&mut first).await, Some(2));
        assert_eq!(next(&mut first).await, None);
        assert_eq!(next(&mut first).await, None);
        assert_eq!((next(&mut second).await, second.missed()), (Some(1), 0));
        assert_eq!(next(&mut publisher.subscribe()).await, None);
    }

    #[tokio::test]
    async fn a_subscriber_that_waits_is_woken_by_a_value_and_by_the_end() {
        let publisher = Arc::new(Publisher::default());
        let mut subscription = publisher.subscribe();
        let subscriber =
            tokio::spawn(
                async move { (next(&mut subscription).await, next(&mut subscription).await) },
            );
        tokio::task::yield_now().await;
        publisher.publish(&7);
        tokio::task::yield_now().await;
        drop(publisher);
        assert_eq!(subscriber.await.unwrap(), (Some(7), None));
    }

    #[tokio::test]
    async fn a_slow_subscriber_misses_the_oldest_and_knows_how_many() {
        let publisher = Publisher::default();
        let mut subscription = publisher.subscribe();
        (0..100).for_each(|value| publisher.publish(&value));
        assert_eq!(subscription.missed(), 36);
        assert_eq!(next(&mut subscription).await, Some(36));
        publisher.publish(&100);
        assert_eq!(subscription.missed(), 36);
    }
}
