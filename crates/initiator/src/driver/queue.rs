//! Queues messages for a driver: those that callers leave while another task holds the driver, and those that
//! are not urgent.
//!
//! This queue is stored beside the driver's lock. A library's channel would take five cache lines, and each
//! turn of the driver would touch most of them. With 1,000 disks these lines would be in no cache at that time.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::driver::request::Message;

/// Most messages taken from the queue in one turn, so that one system call sends many requests.
const AT_ONCE: usize = 64;

/// The messages, the number of their senders, and the waker of the receiver.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whether there are messages, or no senders any more. Written only under the lock; each request and each
    /// turn of the driver reads the flag without the lock.
    has_news: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: Vec<Message>,
    /// Waker of the task that waits for messages.
    waker: Option<Waker>,
    senders: usize,
    /// Whether the driver is gone.
    is_closed: bool,
}

impl Queue {
    /// Adds a sender.
    pub(super) fn join(&self) {
        self.lock().senders += 1;
    }

    /// Removes a sender, and wakes the receiver if it was the last.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.has_news.store(true, Ordering::Release);
            wake(state);
        }
    }

    /// Adds a message; drops it if the driver is gone.
    pub(super) fn send(&self, message: Message) {
        let mut state = self.lock();
        if state.is_closed {
            // The lock is released first: dropping the message may need it.
            drop(state);
            return drop(message);
        }
        state.messages.push(message);
        self.has_news.store(true, Ordering::Release);
        // If earlier messages are in the queue, the waker was already called for them.
        if state.messages.len() == 1 {
            wake(state);
        }
    }

    /// Sets the waker to call when messages arrive or the last sender leaves.
    pub(super) fn wake(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Returns the number of messages, or 0 when all are taken and no sender is left. After `Pending`, the
    /// [waker](Self::wake) will be called: a sender calls it after it has written the message, so the woken task
    /// sees the message.
    pub(super) fn poll(&self) -> Poll<usize> {
        if !self.has_news() {
            return Poll::Pending;
        }
        let state = self.lock();
        let count = state.messages.len();
        if count > 0 || state.senders == 0 { Poll::Ready(count) } else { Poll::Pending }
    }

    /// Takes up to [`AT_ONCE`] messages into `taken`, which must be empty.
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

    /// Closes the queue and returns the messages that are left; later messages are dropped.
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

/// Calls the waker, after the lock is released.
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

    /// `close` returns the messages in the queue. Messages that are sent later are dropped.
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

    /// The receiver gets every message, however many messages it takes at a time, although its waker is set
    /// only once.
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
