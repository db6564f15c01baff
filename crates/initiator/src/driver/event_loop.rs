//! Runs the event loop: the task of a session that waits for its sockets, its deadlines and its messages.
//!
//! The loop waits for all of them at the same time. So a full send buffer does not stop the loop from reading,
//! and one connection does not stop another.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::Driver;
use super::alarm::Alarm;
use super::lock::DriverLock;
use super::turns::{Due, Event};

/// Runs a driver to the end of its session. If the loop is dropped before that, it closes the driver.
pub(crate) struct EventLoop {
    driver: Arc<DriverLock>,
    /// Fires when the first deadline is due.
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

    /// Runs one turn: sends, waits for an event, and handles it. Returns `None` when no further event will
    /// come.
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

    /// Lets other callers submit before anything is sent, as long as more requests are expected. The first of
    /// many requests wakes the loop before the others are submitted; after this wait, one system call sends them
    /// all.
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
        // The order of the polls is fixed, so that a simulation can be repeated.
        poll_fn(|context| match driver.with(|entered| entered.poll_event(&driver.queue, context)) {
            Some(Poll::Ready(event)) => Poll::Ready(Some(event)),
            Some(Poll::Pending) => alarm.poll(context).map(|()| Some(Event::Alarm)),
            None => Poll::Ready(None),
        })
        .await
    }
}

impl Drop for EventLoop {
    /// Closes the driver, so that callers that wait for a response or for the end of the session return. The
    /// runtime may be gone, or a panic may have ended the loop.
    fn drop(&mut self) {
        self.driver.close();
    }
}

/// Lets the tasks run that are ready already. Unlike `tokio::task::yield_now`, this does not make the runtime
/// poll its sockets, which would be a system call.
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
