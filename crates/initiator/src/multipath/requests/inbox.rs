//! Holds the next steps ([`Order`]) of the requests of a disk until their callers take them.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;
use std::time::Instant;

use bytes::BytesMut;
use iscsi_multipath::requests::{AttemptId, Failure, Report, RequestId};
use iscsi_multipath::{Begun, PathId};
use iscsi_session::Completion;
use smallvec::SmallVec;

use crate::error::Error;
use crate::multipath::paths::path::Path;
use crate::state::attempt::Wakers;

/// The response to the command of an attempt, and when it was received.
pub(super) struct Answer {
    pub(super) attempt: AttemptId,
    pub(super) completion: Completion,
    pub(super) came: Instant,
}

/// One attempt of a request: its command is to be sent over the path `carrier`.
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) path: PathId,
    pub(super) carrier: Path,
    /// Whether to use the 10-byte form of the command.
    pub(super) is_short: bool,
    /// Whether this is the second copy of the request.
    pub(super) is_hedge: bool,
}

/// An attempt whose command was executed, but perhaps by another unit.
pub(super) struct Unproven {
    pub(super) attempt: AttemptId,
    pub(super) path: PathId,
    pub(super) begun: Begun,
    pub(super) completion: Box<Completion>,
}

/// Next step of a request, which its caller takes.
pub(super) enum Order {
    Send(Attempt),
    Abort(AttemptId),
    /// The request must wait for its traffic class. If `is_hedge`, its second copy must wait.
    Charge {
        is_hedge: bool,
    },
    /// The request must reserve memory for a second copy. If `waits`, it waits until the memory is available.
    Reserve {
        waits: bool,
    },
    Unreserve,
    /// A flush must find out whether it needs a path without other requests.
    Prepare,
    Report(Report<Error>),
    /// The timer of the request has changed. The next wait uses the new time.
    TimerSet,
    /// The command of an attempt was sent and failed. Returns the buffer of the command. A later step says
    /// what follows.
    Ended(AttemptId, BytesMut),
    /// The unit has executed the command of an attempt. Before the attempt ends, it must be confirmed that
    /// this is the disk's unit.
    Prove(Box<Unproven>),
    /// The attempt that has succeeded, or the failure of the request. If the command of the attempt was the
    /// whole request, there is an [`Answer`] as well.
    Completed(Result<AttemptId, Failure<Error>>),
}

/// The steps of each request, kept until the caller of the request has taken its last step.
#[derive(Default)]
pub(crate) struct Inboxes {
    /// Inboxes by the [places](RequestId::place) of the requests.
    by_place: Vec<Inbox>,
    /// Inboxes of completed requests whose place was taken by another request before their caller took the
    /// result.
    late: Vec<Inbox>,
}

#[derive(Default)]
struct Inbox {
    /// The request to which the inbox belongs; `None` while the inbox is closed. A closed inbox has no steps and
    /// no answer.
    request: Option<RequestId>,
    /// Number of bytes that the request moves.
    len: u64,
    orders: Orders,
    /// Separate from the steps, because steps are moved often and an answer is large.
    answer: Option<Answer>,
    waker: Option<Waker>,
}

/// Steps of a request that its caller has not taken, the earliest first. Usually there is at most one.
#[derive(Default)]
struct Orders {
    next: Option<Order>,
    later: VecDeque<Order>,
}

impl Inboxes {
    /// Opens the inbox of a request. `waker` wakes the task that submits the request.
    pub(super) fn open(&mut self, request: RequestId, len: u64, waker: Option<Waker>) {
        let place = request.place() as usize;
        if self.by_place.len() <= place {
            self.by_place.resize_with(place + 1, Inbox::default);
        }
        let Some(inbox) = self.by_place.get_mut(place) else { return };
        if inbox.request.is_some() {
            self.late.push(mem::take(inbox));
        }
        // The inbox is changed in place, because a move would also copy the space for an answer.
        (inbox.request, inbox.len, inbox.waker) = (Some(request), len, waker);
    }

    /// Returns the number of bytes that a request moves.
    pub(super) fn len_of(&self, request: RequestId) -> Option<u64> {
        self.get(request).map(|inbox| inbox.len)
    }

    /// Adds a step for a request, unless its caller has given up the request.
    pub(super) fn push(&mut self, request: RequestId, order: Order, wakers: &mut Wakers) {
        if let Some(inbox) = self.get_mut(request) {
            inbox.orders.push(order);
            wakers.add(inbox.waker.take());
        }
    }

    /// Stores the answer to a request that completes with it, unless its caller has given up the request.
    pub(super) fn put_answer(&mut self, request: RequestId, answer: &mut Option<Answer>) {
        if let Some(inbox) = self.get_mut(request) {
            inbox.answer = answer.take();
        }
    }

    /// Returns whether the caller of a request has neither given up the request nor received its result.
    pub(super) fn is_open(&self, request: RequestId) -> bool {
        self.get(request).is_some()
    }

    /// Returns whether a request has steps that its caller has not taken.
    pub(super) fn has_orders(&self, request: RequestId) -> bool {
        self.get(request).is_some_and(|inbox| inbox.orders.next.is_some())
    }

    /// Takes the attempts that the caller would have to end: attempts whose command was not sent, and
    /// attempts whose unit was not confirmed.
    pub(super) fn take_attempts(
        &mut self,
        request: RequestId,
    ) -> SmallVec<[(AttemptId, PathId); 1]> {
        let mut attempts = SmallVec::new();
        let Some(inbox) = self.get_mut(request) else { return attempts };
        let mut orders = mem::take(&mut inbox.orders);
        while let Some(order) = orders.pop() {
            if let Order::Send(Attempt { id, path, .. }) = order {
                attempts.push((id, path));
            } else if let Order::Prove(unproven) = order {
                let Unproven { attempt, path, completion, .. } = *unproven;
                attempts.push((attempt, path));
                inbox.orders.push(Order::Ended(attempt, completion.data));
            } else {
                inbox.orders.push(order);
            }
        }
        attempts
    }

    /// Takes the next step. [`Order::Completed`] is the last step: it is returned with the answer, and
    /// closes the inbox.
    pub(super) fn take(
        &mut self,
        request: RequestId,
        answer: &mut Option<Answer>,
    ) -> Option<Order> {
        let inbox = self.get_mut(request)?;
        let order = inbox.orders.pop()?;
        inbox.waker = None;
        if let Order::Completed(_) = order {
            *answer = inbox.answer.take();
            inbox.request = None;
            self.forget_late();
        }
        Some(order)
    }

    /// Registers `waker`, which is called when there is a step.
    pub(super) fn wake(&mut self, request: RequestId, waker: &Waker) {
        if let Some(inbox) = self.get_mut(request) {
            match &mut inbox.waker {
                Some(before) => before.clone_from(waker),
                None => inbox.waker = Some(waker.clone()),
            }
        }
    }

    /// Closes the inbox of a request that its caller has given up. Returns the remaining steps and the
    /// answer. Drop them when no lock is held, because the drop returns buffers to their pool.
    pub(super) fn close(&mut self, request: RequestId) -> impl Sized + use<> {
        let closed = self.get_mut(request).map(mem::take);
        self.forget_late();
        closed
    }

    /// Removes the closed inboxes from `late`.
    fn forget_late(&mut self) {
        if !self.late.is_empty() {
            self.late.retain(|inbox| inbox.request.is_some());
        }
    }

    fn get(&self, request: RequestId) -> Option<&Inbox> {
        let is_of = |inbox: &&Inbox| inbox.request == Some(request);
        let at_place = self.by_place.get(request.place() as usize).filter(is_of);
        at_place.or_else(|| self.late.iter().find(is_of))
    }

    fn get_mut(&mut self, request: RequestId) -> Option<&mut Inbox> {
        let is_of = |inbox: &&mut Inbox| inbox.request == Some(request);
        match self.by_place.get_mut(request.place() as usize).filter(is_of) {
            Some(inbox) => Some(inbox),
            None => self.late.iter_mut().find(is_of),
        }
    }
}

impl Orders {
    fn push(&mut self, order: Order) {
        if self.next.is_none() {
            self.next = Some(order);
        } else {
            self.later.push_back(order);
        }
    }

    fn pop(&mut self) -> Option<Order> {
        let order = self.next.take()?;
        if !self.later.is_empty() {
            self.next = self.later.pop_front();
        }
        Some(order)
    }
}
