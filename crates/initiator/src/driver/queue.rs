//! What is left to a driver that somebody else has at that time, or that need not be told at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc;

use crate::driver::request::Message;

/// Messages taken from the queue at once, so that one system call sends many requests.
const AT_ONCE: usize = 64;

/// The driver's end of the queue.
pub(super) struct Queue {
    messages: mpsc::UnboundedReceiver<Message>,
    /// Messages that are in the queue, or about to be. To look at the queue itself costs several cache lines.
    count: Arc<AtomicUsize>,
    /// Messages taken from the queue, not yet acted on.
    taken: Vec<Message>,
}

/// The end of the handles.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    messages: mpsc::UnboundedSender<Message>,
    count: Arc<AtomicUsize>,
}

pub(super) fn queue() -> (Sender, Queue) {
    let (sender, messages) = mpsc::unbounded_channel();
    let count = Arc::new(AtomicUsize::new(0));
    let queue = Queue { messages, count: Arc::clone(&count), taken: Vec::with_capacity(AT_ONCE) };
    (Sender { messages: sender, count }, queue)
}

impl Sender {
    /// Leaves a message; it is dropped where the driver is gone.
    pub(super) fn send(&self, message: Message) {
        // Before it is there: who knows that it was sent finds it counted.
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(self.messages.send(message));
    }
}

impl Queue {
    /// Ready when there are messages, and with 0 when there will be none any more.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let count = ready!(self.messages.poll_recv_many(context, &mut self.taken, AT_ONCE));
        self.count.fetch_sub(count, Ordering::Relaxed);
        Poll::Ready(count)
    }

    /// How many messages were taken from it by now.
    pub(super) const fn taken(&self) -> usize {
        self.taken.len()
    }

    /// The messages that were taken from it, and those that are there, up to so many at once.
    pub(super) fn take(&mut self) -> Vec<Message> {
        while self.taken.len() < AT_ONCE
            && self.count.load(Ordering::Relaxed) > 0
            && let Ok(message) = self.messages.try_recv()
        {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.taken.push(message);
        }
        std::mem::take(&mut self.taken)
    }

    /// Gives the memory of the messages back.
    pub(super) fn restore(&mut self, taken: Vec<Message>) {
        self.taken = taken;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

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
        let mut context = Context::from_waker(Waker::noop());
        assert!(queue.poll(&mut context).is_pending());
        sender.send(cancel(1));
        assert_eq!(queue.poll(&mut context), Poll::Ready(1));
        sender.send(cancel(2));
        assert_eq!(queue.taken(), 1);
        let messages = queue.take();
        assert_eq!(ids(&messages), [1, 2]);
        queue.restore(Vec::new());
        assert!(queue.poll(&mut context).is_pending());
        sender.send(cancel(3));
        assert_eq!(ids(&queue.take()), [3]);
        assert_eq!(queue.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_end_is_told_when_the_last_sender_is_gone_and_not_before() {
        let (sender, mut queue) = queue();
        let mut context = Context::from_waker(Waker::noop());
        let other = sender.clone();
        drop(sender);
        assert!(queue.poll(&mut context).is_pending());
        other.send(cancel(1));
        drop(other);
        assert_eq!(queue.poll(&mut context), Poll::Ready(1));
        for _ in 0..2 {
            assert_eq!(queue.poll(&mut context), Poll::Ready(0));
        }
    }

    /// Each message wakes, however they are taken.
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
        let mut seen = Vec::new();
        while std::future::poll_fn(|context| queue.poll(context)).await > 0 {
            let mut messages = queue.take();
            seen.extend(ids(&messages));
            messages.clear();
            queue.restore(messages);
        }
        sending.join().unwrap();
        assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    }
}
