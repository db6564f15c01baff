//! What a target announces, for those who listen.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use iscsi_session::Notice;

/// How many notices are kept for a listener who does not take them.
const CAPACITY: usize = 64;

/// Announcements of a target: a subscription from [`Session::notices`](crate::Session::notices).
///
/// It receives what the target announces after the subscription, until the session ends. Up to 64
/// notices wait for a slow receiver; after that the oldest ones are dropped, and
/// [`missed`](Self::missed) counts them.
#[derive(Debug)]
pub struct Notices(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    notices: VecDeque<Notice>,
    missed: u64,
    has_ended: bool,
    waker: Option<Waker>,
}

/// The end that notices come from.
#[derive(Debug, Default)]
pub(crate) struct Announcer(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    queues: Vec<Weak<Mutex<Queue>>>,
    has_ended: bool,
}

impl Notices {
    /// Waits for the next notice; `None` when the session has ended and all notices have been
    /// received. Dropping the future loses none.
    pub async fn recv(&mut self) -> Option<Notice> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Polls for the next notice, for a hand-written future or stream: `Ready(None)` when the
    /// session has ended and all notices have been received.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        let mut queue = lock(&self.0);
        if let Some(notice) = queue.notices.pop_front() {
            return Poll::Ready(Some(notice));
        }
        if queue.has_ended {
            return Poll::Ready(None);
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns how many notices were dropped because they were not received in time.
    pub fn missed(&self) -> u64 {
        lock(&self.0).missed
    }
}

impl Announcer {
    /// A listener to all that comes from now on.
    pub(crate) fn subscribe(&self) -> Notices {
        let mut listeners = lock(&self.0);
        let queue = Queue { has_ended: listeners.has_ended, ..Queue::default() };
        let queue = Arc::new(Mutex::new(queue));
        listeners.queues.retain(|queue| queue.strong_count() > 0);
        listeners.queues.push(Arc::downgrade(&queue));
        Notices(queue)
    }

    pub(crate) fn announce(&self, notice: &Notice) {
        self.for_each(|queue| {
            if queue.notices.len() >= CAPACITY {
                queue.notices.pop_front();
                queue.missed += 1;
            }
            queue.notices.push_back(notice.clone());
        });
    }

    /// Nothing comes any more.
    pub(crate) fn end(&self) {
        lock(&self.0).has_ended = true;
        self.for_each(|queue| queue.has_ended = true);
    }

    fn for_each(&self, change: impl Fn(&mut Queue)) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(response: u8) -> Notice {
        Notice::LogoutFailed { response }
    }

    async fn number(notices: &mut Notices) -> Option<u8> {
        let notice = notices.recv().await?;
        let Notice::LogoutFailed { response } = notice else { panic!("{notice:?}") };
        Some(response)
    }

    #[tokio::test]
    async fn a_listener_hears_all_from_its_beginning_to_the_end() {
        let announcer = Announcer::default();
        announcer.announce(&notice(0));
        let mut notices = announcer.subscribe();
        let mut second = announcer.subscribe();
        announcer.announce(&notice(1));
        announcer.announce(&notice(2));
        announcer.end();
        assert_eq!(number(&mut notices).await, Some(1));
        assert_eq!(number(&mut notices).await, Some(2));
        assert_eq!(number(&mut notices).await, None);
        assert_eq!(number(&mut notices).await, None);
        assert_eq!((number(&mut second).await, second.missed()), (Some(1), 0));
        assert_eq!(number(&mut announcer.subscribe()).await, None);
    }

    #[tokio::test]
    async fn a_listener_that_waits_is_woken() {
        let announcer = Arc::new(Announcer::default());
        let mut notices = announcer.subscribe();
        let listener =
            tokio::spawn(async move { (number(&mut notices).await, number(&mut notices).await) });
        tokio::task::yield_now().await;
        announcer.announce(&notice(7));
        tokio::task::yield_now().await;
        announcer.end();
        assert_eq!(listener.await.unwrap(), (Some(7), None));
    }

    #[tokio::test]
    async fn a_slow_listener_loses_the_oldest_and_knows_how_many() {
        let announcer = Announcer::default();
        let mut notices = announcer.subscribe();
        (0..100).for_each(|response| announcer.announce(&notice(response)));
        assert_eq!(notices.missed(), 36);
        assert_eq!(number(&mut notices).await, Some(36));
        announcer.announce(&notice(100));
        assert_eq!(notices.missed(), 36);
    }
}
