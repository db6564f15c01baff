//! The event loop: the task of a session that waits for its sockets, its deadlines and its messages.
//!
//! It waits for whatever comes first and never for one direction of a socket alone: a full send buffer does not stop it
//! from reading, nor does one connection stop another.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::Driver;
use super::alarm::Alarm;
use super::lock::DriverLock;
use super::turns::{Due, Event};

/// Runs a driver to the end of its session. Dropped before, it takes the driver with it.
pub(crate) struct EventLoop {
    driver: Arc<DriverLock>,
    /// Rings when the first of what is waited for is due.
    alarm: Alarm,
}

impl EventLoop {
    pub(super) fn new(driver: Arc<DriverLock>) -> Self {
        Self { driver, alarm: Alarm::new() }
    }

    /// Runs the session to its end.
    pub(crate) async fn run(mut self) {
        while self.turn().await.is_some() {}
    }

    /// Does what there is to do, waits for an event, and acts on it; `None` when there will be no other one.
    async fn turn(&mut self) -> Option<()> {
        let due = self.driver.with(Driver::prepare_to_wait).flatten()?;
        let event = self.next_event(due).await?;
        let is_asked = matches!(event, Event::Messages(1..) | Event::Call);
        if is_asked {
            self.let_others_ask().await?;
        }
        if self.driver.with(|driver| driver.handle(event, due, &self.driver.queue))? {
            let_others_run().await;
        }
        while is_asked && self.driver.with(Driver::read_before_writing)? {
            self.let_others_ask().await?;
        }
        Some(())
    }

    /// The first of many requests wakes the loop before the others have been made: a turn later one system call takes them
    /// all. Waits for as long as somebody is on the way.
    async fn let_others_ask(&mut self) -> Option<()> {
        while let Some(unsent) = self.driver.with(|driver| driver.unsent_before_others())? {
            let_others_run().await;
            self.driver
                .with(|driver| driver.stop_waiting_unless_asked(unsent, &self.driver.queue))?;
        }
        Some(())
    }

    async fn next_event(&mut self, due: Due) -> Option<Event> {
        let Self { driver, alarm } = self;
        alarm.set(due.first(), due.now);
        // In an order that does not change, so that a simulation can be repeated.
        poll_fn(|context| match driver.with(|entered| entered.poll_event(&driver.queue, context)) {
            Some(Poll::Ready(event)) => Poll::Ready(Some(event)),
            Some(Poll::Pending) => alarm.poll(context).map(|()| Some(Event::Alarm)),
            None => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for EventLoop {
    /// Whoever waits for an answer, or for the end of the session, sees that nothing else comes: the runtime may be gone,
    /// or a panic has left the driver behind.
    fn drop(&mut self) {
        self.driver.close();
    }
}

/// Goes behind the tasks that are to run already. In contrast to `tokio::task::yield_now` the runtime need not look at its
/// sockets in between, which is a system call.
async fn let_others_run() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
