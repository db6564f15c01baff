//! What is left to a driver that somebody else has at that time, or that need not be told at once.
//!
//! A channel of a library lies on five cache lines, and each turn of the driver touches most of them: with 1,000 disks they
//! are cold each time. This one lies beside the driver's lock.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::driver::request::Message;

/// Messages taken from the queue at once, so that one system call sends many requests.
const AT_ONCE: usize = 64;

/// The messages, those who send them, and whom they wake.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whether there are messages, or no senders any more. Each request and each turn of the driver looks at it without
    /// the lock, under which alone it is written.
    has_news: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: Vec<Message>,
    /// Of whoever waits for messages.
    waker: Option<Waker>,
    senders: usize,
    /// The driver is gone.
    is_closed: bool,
}

impl Queue {
    /// There is one more who sends.
    pub(super) fn join(&self) {
        self.lock().senders += 1;
    }

    /// One of those who send is gone.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.has_news.store(true, Ordering::Release);
            wake(state);
        }
    }

    /// Leaves a message; it is dropped where the driver is gone.
    pub(super) fn send(&self, message: Message) {
        let mut state = self.lock();
        if state.is_closed {
            // It may hold what wants the lock.
            drop(state);
            return drop(message);
        }
        state.messages.push(message);
        self.has_news.store(true, Ordering::Release);
        // Of those before it somebody was told, and is on his way.
        if state.messages.len() == 1 {
            wake(state);
        }
    }

    /// Who is woken from now on when there is something to look at.
    pub(super) fn wake(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Ready when there are messages, and with 0 when there will be none any more. Otherwise whoever is to be
    /// [woken](Self::wake) will be: whoever sends wakes after he has written, and a task that was woken sees what was
    /// written before.
    pub(super) fn poll(&self) -> Poll<usize> {
        if !self.has_news() {
            return Poll::Pending;
        }
        let state = self.lock();
        let count = state.messages.len();
        if count > 0 || state.senders == 0 { Poll::Ready(count) } else { Poll::Pending }
    }

    /// Takes the messages that are there, up to so many at once, into `taken`, which has to be empty.
    pub(super) fn take(&self, taken: &mut Vec<Message>) {
        if !self.has_news() {
            return;
        }
        let mut state = self.lock();
        if state.messages.len() <= AT_ONCE {
            mem::swap(&mut state.messages, taken);
            self.has_news.store(state.senders == 0, Ordering::Release);
        } else {
            taken.extend(state.messages.drain(..AT_ONCE));
        }
    }

    /// The driver is gone: what was left to it comes back, and nothing is left any more.
    pub(super) fn close(&self) -> Vec<Message> {
        let mut state = self.lock();
        state.is_closed = true;
        mem::take(&mut state.messages)
    }

    fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes whoever waits, without the lock.
fn wake(state: MutexGuard<'_, State>) {
    let waker = state.waker.clone();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::driver::request::RequestId;

    fn cancel(id: u64) -> Message {
        Message::Cancel(RequestId(id))
    }

    fn ids(messages: &[Message]) -> Vec<u64> {
        let id = |message: &Message| {
            let Message::Cancel(RequestId(id)) = message else { panic!("{message:?}") };
            *id
        };
        messages.iter().map(id).collect()
    }

    fn taken(queue: &Queue) -> Vec<u64> {
        let mut messages = Vec::new();
        queue.take(&mut messages);
        ids(&messages)
    }

    fn queue() -> Queue {
        let queue = Queue::default();
        queue.join();
        queue
    }

    #[test]
    fn messages_keep_their_order_whoever_takes_them() {
        let queue = queue();
        assert!(queue.poll().is_pending());
        queue.send(cancel(1));
        assert_eq!(queue.poll(), Poll::Ready(1));
        queue.send(cancel(2));
        assert_eq!(taken(&queue), [1, 2]);
        assert!(queue.poll().is_pending());
        queue.send(cancel(3));
        assert_eq!(taken(&queue), [3]);
        assert!(queue.poll().is_pending() && taken(&queue).is_empty());
    }

    #[test]
    fn the_end_is_told_when_the_last_sender_is_gone_and_not_before() {
        let queue = queue();
        queue.join();
        queue.leave();
        assert!(queue.poll().is_pending());
        queue.send(cancel(1));
        queue.leave();
        assert_eq!(queue.poll(), Poll::Ready(1));
        assert_eq!(taken(&queue), [1]);
        for _ in 0..2 {
            assert_eq!(queue.poll(), Poll::Ready(0));
        }
    }

    #[test]
    fn what_is_left_to_a_driver_that_goes_comes_back_and_what_comes_later_is_dropped() {
        let queue = queue();
        let answers = [(); 2].map(|()| {
            let (answer, told) = tokio::sync::oneshot::channel();
            (Message::Read(answer), told)
        });
        let [(early, mut told_early), (late, mut told_late)] = answers;
        queue.send(early);
        let messages = queue.close();
        assert_eq!(told_early.try_recv().unwrap_err(), TryRecvError::Empty);
        drop(messages);
        queue.send(late);
        for told in [&mut told_early, &mut told_late] {
            assert_eq!(told.try_recv().unwrap_err(), TryRecvError::Closed);
        }
    }

    #[test]
    fn many_messages_are_taken_in_turns() {
        let queue = queue();
        (0..150).for_each(|id| queue.send(cancel(id)));
        let mut seen = Vec::new();
        for count in [64, 64, 22, 0] {
            let messages = taken(&queue);
            assert_eq!(messages.len(), count);
            seen.extend(messages);
        }
        assert_eq!(seen, (0..150).collect::<Vec<_>>());
    }

    /// Each message wakes, however they are taken; the queue is told once whom.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_message_is_left_lying() {
        const COUNT: u64 = 20_000;
        let queue = Arc::new(queue());
        let sender = Arc::clone(&queue);
        let sending = std::thread::spawn(move || {
            for id in 0..COUNT {
                sender.send(cancel(id));
                if id % 3 == 0 {
                    std::thread::yield_now();
                }
            }
            sender.leave();
        });
        queue.wake(poll_fn(|context| Poll::Ready(context.waker().clone())).await);
        let mut seen = Vec::new();
        while poll_fn(|_| queue.poll()).await > 0 {
            seen.extend(taken(&queue));
        }
        sending.join().unwrap();
        assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    }
}
