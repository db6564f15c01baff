//! The event loop: the task of a session that waits for its sockets, its deadlines and its messages.
//!
//! It waits for whatever comes first and never for one direction of a socket alone: a full send buffer does not stop it
//! from reading, nor does one connection stop another.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::Driver;
use super::alarm::Alarm;
use super::lock::DriverLock;
use super::queue::Queue;
use super::transports::{Readiness, poll_any};

/// Runs a driver to the end of its session. Dropped before, it takes the driver with it.
pub(crate) struct EventLoop {
    driver: Arc<DriverLock>,
    /// Rings when the first of what is waited for is due.
    alarm: Alarm,
}

/// What the loop waits for.
enum Event {
    Connection(Readiness),
    Messages(usize),
    /// A caller has left something to the loop.
    Call,
    /// Something is due.
    Alarm,
}

/// When the loop is to be woken at the latest, and what for.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// When it was seen what is due.
    now: Instant,
    session: Option<Instant>,
    poll: Option<Instant>,
    look: Option<Instant>,
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
        self.driver.with(|driver| driver.handle(event, due, &self.driver.queue))?;
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

impl Due {
    pub(super) fn first(&self) -> Option<Instant> {
        self.session.into_iter().chain(self.poll).chain(self.look).min()
    }
}

impl Driver {
    /// Ends the turn; tells when the next one is due at the latest, unless the session has ended.
    fn prepare_to_wait(&mut self) -> Option<Due> {
        self.finish_turn();
        if self.ended {
            return None;
        }
        self.await_answers();
        let due = self.due();
        (self.calls_loop, self.loop_due) = (false, due.first());
        Some(due)
    }

    pub(super) fn due(&self) -> Due {
        Due {
            now: self.now,
            session: self.session.poll_timeout().map(|(deadline, _)| Instant::from_std(deadline)),
            poll: (self.now < self.awake_until).then_some(self.poll_due),
            look: self.is_coalescing().then(|| self.answers.look_due()),
        }
    }

    fn poll_event(&mut self, queue: &Queue, context: &mut Context<'_>) -> Poll<Event> {
        if self.calls_loop {
            return Poll::Ready(Event::Call);
        }
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            queue.wake(context.waker().clone());
            self.waker = Some(context.waker().clone());
        }
        if !self.orphaned
            && let Poll::Ready(count) = queue.poll()
        {
            self.told = count;
            return Poll::Ready(Event::Messages(count));
        }
        let readiness = ready!(poll_any(&mut self.transports, context));
        Poll::Ready(Event::Connection(readiness))
    }

    /// How many requests are unsent, if callers may be about to ask that have not yet: each asks again when it has its
    /// answer. For one that has asked nobody else is waited for; a turn for others takes its request to another thread and
    /// back: 26 us of processor time for a read of 4 KiB, 16 without.
    fn unsent_before_others(&self) -> Option<usize> {
        (self.answers.may_ask() > self.told).then_some(self.unsent)
    }

    /// Whoever has not asked by now, while others could, does not ask.
    fn stop_waiting_unless_asked(&mut self, unsent: usize, queue: &Queue) {
        self.now = Instant::now();
        self.obey_messages(queue);
        if self.unsent == unsent {
            self.answers.nobody_asks();
        }
    }

    /// Acts on an event, and then on what is due by now: what the event has brought is not late.
    fn handle(&mut self, event: Event, due: Due, queue: &Queue) {
        self.now = Instant::now();
        match event {
            Event::Connection(Readiness::Opened(cid, result)) => self.opened(cid, *result),
            Event::Connection(Readiness::Ready) => {
                self.answers.nobody_asks();
                self.read();
            }
            Event::Messages(0) => {
                self.orphaned = true;
                self.session.logout(self.now());
            }
            Event::Messages(_) | Event::Call => drop(self.obey_messages(queue)),
            Event::Alarm => {}
        }
        if due.first().is_some_and(|first| first <= self.now) {
            self.handle_due(due);
        }
    }

    /// Where a sign of life is overdue, the kernel knows whether the target's host is there.
    fn ask_hosts(&mut self) {
        let now = self.now();
        for transport in &mut self.transports {
            let cid = transport.cid;
            if !self.session.is_sign_of_life_overdue(cid, now) {
                continue;
            }
            let is_there = transport
                .tune(|socket, _| socket.tcp_info().is_ok_and(|info| info.is_all_acknowledged()));
            if is_there == Some(true) {
                self.session.host_acknowledges(cid, now);
            }
        }
    }

    fn handle_due(&mut self, due: Due) {
        let now = self.now;
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        if is_due(due.session) {
            self.read_kept();
            self.ask_hosts();
            self.session.handle_timeout(self.now());
        }
        // A rest that has ended meanwhile has put it off.
        if is_due(due.poll) && self.poll_due <= now {
            self.read_kept();
            // What an answer has let out by now is waited for no more.
            self.finish_turn();
            self.poll_kernel();
        }
        if is_due(due.look) {
            self.look();
        }
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
