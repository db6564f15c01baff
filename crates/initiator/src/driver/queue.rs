//! What is left to a driver that somebody else has at that time, or that need not be told at once.
//!
//! A channel of a library lies on five cache lines, and each turn of the driver touches most of them: with 1,000 disks they
//! are cold each time. This lies on two.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::driver::request::Message;

/// Messages taken from the queue at once, so that one system call sends many requests.
const AT_ONCE: usize = 64;

/// The driver's end of the queue.
pub(super) struct Queue {
    shared: Arc<Shared>,
    /// Messages that have been told of and are not acted on.
    told: usize,
    /// Memory for those that are acted on.
    taken: Vec<Message>,
}

/// The end of the handles.
#[derive(Debug)]
pub(super) struct Sender(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
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

pub(super) fn queue() -> (Sender, Queue) {
    let shared = Arc::<Shared>::default();
    shared.lock().senders = 1;
    (Sender(Arc::clone(&shared)), Queue { shared, told: 0, taken: Vec::new() })
}

impl Shared {
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

impl Sender {
    /// Leaves a message; it is dropped where the driver is gone.
    pub(super) fn send(&self, message: Message) {
        let mut state = self.0.lock();
        if state.is_closed {
            // It may hold what wants the lock.
            drop(state);
            return drop(message);
        }
        state.messages.push(message);
        self.0.has_news.store(true, Ordering::Release);
        // Of those before it somebody was told, and is on his way.
        if state.messages.len() == 1 {
            wake(state);
        }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.has_news.store(true, Ordering::Release);
            wake(state);
        }
    }
}

impl Queue {
    /// Who is woken from now on when there is something to look at.
    pub(super) fn wake(&self, waker: Waker) {
        self.shared.lock().waker = Some(waker);
    }

    /// Ready when there are messages, and with 0 when there will be none any more. Otherwise whoever is to be
    /// [woken](Self::wake) will be: whoever sends wakes after he has written, and a task that was woken sees what was
    /// written before.
    pub(super) fn poll(&mut self) -> Poll<usize> {
        if !self.shared.has_news.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let state = self.shared.lock();
        self.told = state.messages.len();
        if self.told > 0 || state.senders == 0 { Poll::Ready(self.told) } else { Poll::Pending }
    }

    /// How many messages were told of and are not acted on yet.
    pub(super) const fn told(&self) -> usize {
        self.told
    }

    /// The messages that are there, up to so many at once.
    pub(super) fn take(&mut self) -> Vec<Message> {
        self.told = 0;
        let mut taken = mem::take(&mut self.taken);
        if !self.shared.has_news.load(Ordering::Acquire) {
            return taken;
        }
        let mut state = self.shared.lock();
        if state.messages.len() <= AT_ONCE {
            mem::swap(&mut state.messages, &mut taken);
            self.shared.has_news.store(state.senders == 0, Ordering::Release);
        } else {
            taken.extend(state.messages.drain(..AT_ONCE));
        }
        taken
    }

    /// Gives the memory of the messages back, of which none is left.
    pub(super) fn restore(&mut self, taken: Vec<Message>) {
        self.taken = taken;
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let messages = mem::take(&mut state.messages);
        drop(state);
        drop(messages);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::driver::shared::RequestId;

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

    #[test]
    fn messages_keep_their_order_whoever_takes_them() {
        let (sender, mut queue) = queue();
        assert!(queue.poll().is_pending());
        sender.send(cancel(1));
        assert_eq!(queue.poll(), Poll::Ready(1));
        sender.send(cancel(2));
        assert_eq!(queue.told(), 1);
        let messages = queue.take();
        assert_eq!(ids(&messages), [1, 2]);
        queue.restore(Vec::new());
        assert!(queue.poll().is_pending());
        sender.send(cancel(3));
        assert_eq!(ids(&queue.take()), [3]);
        assert!(queue.poll().is_pending() && queue.take().is_empty());
    }

    #[test]
    fn the_end_is_told_when_the_last_sender_is_gone_and_not_before() {
        let (sender, mut queue) = queue();
        let other = sender.clone();
        drop(sender);
        assert!(queue.poll().is_pending());
        other.send(cancel(1));
        drop(other);
        assert_eq!(queue.poll(), Poll::Ready(1));
        assert_eq!(ids(&queue.take()), [1]);
        for _ in 0..2 {
            assert_eq!(queue.poll(), Poll::Ready(0));
        }
    }

    #[test]
    fn what_is_left_to_a_driver_that_goes_is_dropped_and_what_comes_later_too() {
        let (sender, queue) = queue();
        let answers = [(); 2].map(|()| {
            let (answer, told) = tokio::sync::oneshot::channel();
            (Message::Read(answer), told)
        });
        let [(early, mut told_early), (late, mut told_late)] = answers;
        sender.send(early);
        assert_eq!(told_early.try_recv().unwrap_err(), TryRecvError::Empty);
        drop(queue);
        sender.send(late);
        for told in [&mut told_early, &mut told_late] {
            assert_eq!(told.try_recv().unwrap_err(), TryRecvError::Closed);
        }
    }

    #[test]
    fn many_messages_are_taken_in_turns() {
        let (sender, mut queue) = queue();
        (0..150).for_each(|id| sender.send(cancel(id)));
        let mut seen = Vec::new();
        for count in [64, 64, 22, 0] {
            let mut messages = queue.take();
            assert_eq!(messages.len(), count);
            seen.extend(ids(&messages));
            messages.clear();
            queue.restore(messages);
        }
        assert_eq!(seen, (0..150).collect::<Vec<_>>());
    }

    /// Each message wakes, however they are taken; the queue is told once whom.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_message_is_left_lying() {
        const COUNT: u64 = 20_000;
        let (sender, mut queue) = queue();
        let sending = std::thread::spawn(move || {
            for id in 0..COUNT {
                sender.send(cancel(id));
                if id % 3 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        queue.wake(poll_fn(|context| Poll::Ready(context.waker().clone())).await);
        let mut seen = Vec::new();
        while poll_fn(|_| queue.poll()).await > 0 {
            let mut messages = queue.take();
            seen.extend(ids(&messages));
            messages.clear();
            queue.restore(messages);
        }
        sending.join().unwrap();
        assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    }
}
