//! Runs the turns of a driver, in its event loop and in callers. A caller hands its request over, and sends all
//! unsent requests if no other request is expected to join them. That saves a turn of the event loop.

use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::Driver;
use super::queue::Queue;
use super::transports::{Readiness, poll_any};
use crate::driver::request::Submission;

/// Most bytes of data of a request that its caller sends. Moving more takes longer than waking the event loop,
/// which may run on another thread.
const SHORT: usize = 64 << 10;

/// Most bytes of data of a small request. Handling such a request costs initiator and target more than moving
/// its data, so neither should wait for the other.
const SMALL: usize = 8 << 10;

/// An event that the event loop waits for.
pub(super) enum Event {
    Connection(Readiness),
    Messages(usize),
    /// A caller has left work to the loop.
    Call,
    /// A deadline has come.
    Alarm,
}

/// Deadlines of the event loop, by their reasons; the loop must wake at the earliest.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// Time at which the deadlines were read.
    pub(super) now: Instant,
    session: Option<Instant>,
    poll: Option<Instant>,
    kept_poll: Option<Instant>,
}

impl Due {
    pub(super) fn first(&self) -> Option<Instant> {
        self.session.into_iter().chain(self.poll).chain(self.kept_poll).min()
    }
}

impl Driver {
    /// Ends the turn, and returns the deadlines of the next one; `None` if the session has ended.
    pub(super) fn prepare_to_wait(&mut self) -> Option<Due> {
        self.finish_turn();
        if self.ended {
            return None;
        }
        self.await_answers();
        let due = self.due();
        (self.event_loop.is_called, self.event_loop.due) = (false, due.first());
        Some(due)
    }

    pub(super) fn due(&self) -> Due {
        Due {
            now: self.now,
            session: self.session.poll_timeout().map(|(deadline, _)| Instant::from_std(deadline)),
            poll: (self.now < self.links.polls.awake_until).then_some(self.links.polls.due),
            kept_poll: self.links.is_coalescing().then(|| self.requests.answers.kept_poll_due()),
        }
    }

    pub(super) fn poll_event(&mut self, queue: &Queue, context: &mut Context<'_>) -> Poll<Event> {
        if self.event_loop.is_called {
            return Poll::Ready(Event::Call);
        }
        if self.event_loop.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            queue.wake(context.waker().clone());
            self.event_loop.waker = Some(context.waker().clone());
        }
        if !self.inbox.orphaned
            && let Poll::Ready(count) = queue.poll()
        {
            self.inbox.announced = count;
            return Poll::Ready(Event::Messages(count));
        }
        let readiness = ready!(poll_any(&mut self.links.transports, context));
        Poll::Ready(Event::Connection(readiness))
    }

    /// Returns the number of unsent requests if they should wait for more: if callers that have received a
    /// response, and are not in the queue yet, may soon submit again. Otherwise returns `None`, and the requests
    /// are sent now, because a wait may move them to another thread and back (docs/design/hot-path.md).
    pub(super) fn unsent_before_others(&self) -> Option<usize> {
        (self.requests.answers.may_ask() > self.inbox.announced).then_some(self.requests.unsent)
    }

    /// Handles new messages. If no caller has submitted since the last turn, although all had the chance, none
    /// is expected to submit any more.
    pub(super) fn stop_waiting_unless_asked(&mut self, unsent: usize, queue: &Queue) {
        self.now = Instant::now();
        self.obey_messages(queue);
        if self.requests.unsent == unsent {
            self.requests.answers.clear_may_ask();
        }
    }

    /// Handles an event, and after it the deadlines that have come, so that responses which the event brought do
    /// not count as late. Returns whether bytes may be left to read. Before these are read, the callers that
    /// received a response can submit again.
    pub(super) fn handle(&mut self, event: Event, due: Due, queue: &Queue) -> bool {
        self.now = Instant::now();
        let mut is_rest_left = false;
        match event {
            Event::Connection(Readiness::Opened(cid, result)) => self.opened(cid, *result),
            Event::Connection(Readiness::Ready) => {
                self.requests.answers.clear_may_ask();
                is_rest_left = self.read();
            }
            Event::Messages(0) => {
                self.inbox.orphaned = true;
                self.session.logout(self.now());
            }
            Event::Messages(_) | Event::Call => drop(self.obey_messages(queue)),
            Event::Alarm => {}
        }
        if due.first().is_some_and(|first| first <= self.now) {
            self.handle_due(due);
        }
        is_rest_left
    }

    /// For each connection on which a sign of life of the target is overdue, asks the kernel whether the
    /// target's host has acknowledged all sent data, and reports that to the session.
    fn ask_hosts(&mut self) {
        let now = self.now();
        for transport in &mut self.links.transports {
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
        // The end of an idle time, earlier in this turn, may have postponed the poll.
        if is_due(due.poll) && self.links.polls.due <= now {
            self.read_kept();
            // Sends the commands for which these responses have made room, so that the poll does not count them
            // as waiting.
            self.finish_turn();
            self.poll_kernel();
        }
        if is_due(due.kept_poll) {
            self.poll_kept();
        }
    }

    /// Hands a request to the session, on its caller's thread. Returns whether the caller should send the unsent
    /// requests; otherwise wakes the event loop, which sends them.
    ///
    /// The caller sends a request of at most [`SHORT`] bytes if no other request is expected soon: none is in flight, or each
    /// caller that has received a response has submitted its next request. It sends one of at most [`SMALL`] bytes also if
    /// enough requests are unsent, so that the target does not run out of work.
    pub(super) fn take(&mut self, make: impl FnOnce() -> Submission, queue: &Queue) -> bool {
        let span = self.span.clone();
        let _within = span.enter();
        self.now = Instant::now();
        // The messages in the queue were submitted earlier than this request, so they are handled first.
        while self.obey_messages(queue) > 0 {}
        let may_ask = self.requests.answers.may_ask_at(self.now);
        let submission = make();
        let data_len = submission.request.data_len();
        self.submit(submission);
        self.requests.answers.asked(1);
        let is_last = may_ask == 1 || may_ask == 0 && self.requests.len() == 1;
        let is_sent =
            data_len <= SHORT && is_last || data_len <= SMALL && self.requests.has_enough_unsent();
        if !is_sent {
            self.event_loop.call();
        }
        is_sent
    }

    /// Sends the unsent requests, on the thread of the last caller that was expected to submit.
    pub(super) fn send_by_caller(&mut self) {
        let span = self.span.clone();
        let _within = span.enter();
        let received = self.requests.answers.received();
        if self.read_before_writing() {
            return self.event_loop.call();
        }
        let is_called = std::mem::take(&mut self.event_loop.is_called);
        self.finish_turn();
        if self.requests.answers.received() > received {
            self.await_answers();
        }
        let is_earlier = |due| self.event_loop.due.is_none_or(|expected| due < expected);
        let has_news = self.ended || self.due().first().is_some_and(is_earlier);
        let calls = std::mem::replace(&mut self.event_loop.is_called, is_called) || has_news;
        if calls {
            self.event_loop.call();
        }
    }

    /// Reads the responses that have arrived before requests are sent: their callers submit again, and one
    /// system call sends all requests. The target has work meanwhile, since it has most of the requests. When no
    /// response has arrived, the unsent requests are sent immediately. This saves system calls with a target
    /// that sends each response separately (docs/design/hot-path.md).
    ///
    /// Returns whether a caller has received a response and may submit again.
    pub(super) fn read_before_writing(&mut self) -> bool {
        let is_mostly_unsent = 2 * self.requests.unsent > self.requests.len();
        if self.requests.unsent == 0
            || is_mostly_unsent
            || self.requests.has_enough_unsent()
            || self.requests.answers.skip_read()
        {
            return false;
        }
        self.requests.answers.clear_may_ask();
        self.read_unasked();
        let has_found = self.requests.answers.may_ask() > 0;
        self.requests.answers.record_read(has_found);
        has_found
    }
}
