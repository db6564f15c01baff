//! What the requests of a disk are to do next, until their callers take it.

use std::task::Waker;
use std::time::Instant;

use bytes::BytesMut;
use iscsi_multipath::requests::{AttemptId, Failure, Report, RequestId};
use iscsi_multipath::{Begun, PathId};
use iscsi_session::Completion;
use smallvec::SmallVec;

use crate::error::Error;
use crate::multipath::path::Path;
use crate::state::attempt::Wakers;
use crate::state::counters::RequestKind;

/// The answer to a command, and when it came. Boxed, as orders are moved often.
pub(super) type Timed = (Box<Completion>, Instant);

/// One attempt of a request: its command is to be sent over the path `carrier`.
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) path: PathId,
    pub(super) carrier: Path,
    /// Whether the command goes in ten bytes.
    pub(super) is_short: bool,
    /// Whether it is the second copy, for which memory was reserved.
    pub(super) is_hedge: bool,
}

/// An attempt whose command the unit has executed, while it may have been another one.
pub(super) struct Unproven {
    pub(super) attempt: AttemptId,
    pub(super) path: PathId,
    pub(super) begun: Begun,
    pub(super) completion: Box<Completion>,
}

/// What a request is to do next.
pub(super) enum Order {
    Send(Attempt),
    Abort(AttemptId),
    /// It waits for its class, for its second copy if `is_hedge` says so.
    Charge {
        is_hedge: bool,
    },
    /// It reserves the memory for a second copy, and waits for it if `waits` says so.
    Reserve {
        waits: bool,
    },
    Unreserve,
    /// A flush finds out whether it needs a path without other requests.
    Prepare,
    Report(Report<Error>),
    /// The command of an attempt that was sent has not succeeded. Its buffer comes back. What follows comes next.
    Ended(AttemptId, BytesMut),
    /// The unit has executed the command of an attempt, and has to be asked which unit it is before the attempt ends.
    Prove(Box<Unproven>),
    /// With the answer, if the command of one attempt was all that there was to do.
    Completed(Result<(AttemptId, Option<Timed>), Failure<Error>>),
}

/// The orders for each request that has not taken the last one, by its [place](RequestId::place). Two requests have the same
/// place if one has completed and does not know yet.
#[derive(Default)]
pub(super) struct Inboxes(Vec<SmallVec<[Inbox; 1]>>);

struct Inbox {
    request: RequestId,
    /// What it counts as, and the bytes that it moves.
    counts_as: (RequestKind, u64),
    orders: Orders,
    waker: Option<Waker>,
}

type Orders = SmallVec<[Order; 1]>;

impl Inboxes {
    /// Opens the inbox of a request that is submitted by a task with this waker.
    pub(super) fn open(
        &mut self,
        request: RequestId,
        counts_as: (RequestKind, u64),
        waker: Option<Waker>,
    ) {
        let place = request.place() as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, SmallVec::new);
        }
        let inbox = Inbox { request, counts_as, orders: Orders::new(), waker };
        if let Some(inboxes) = self.0.get_mut(place) {
            inboxes.push(inbox);
        }
    }

    /// The bytes that a request moves.
    pub(super) fn len_of(&self, request: RequestId) -> Option<u64> {
        let inboxes = self.0.get(request.place() as usize)?;
        let inbox = inboxes.iter().find(|inbox| inbox.request == request)?;
        Some(inbox.counts_as.1)
    }

    /// Gives an order to a request, unless its caller has given it up.
    pub(super) fn push(&mut self, request: RequestId, order: Order, wakers: &mut Wakers) {
        if let Some(inbox) = self.get_mut(request) {
            inbox.orders.push(order);
            wakers.extend(inbox.waker.take());
        }
    }

    /// Whether the caller of a request has not given it up, and does not have its result.
    pub(super) fn is_open(&self, request: RequestId) -> bool {
        self.len_of(request).is_some()
    }

    /// Whether a request has orders that its caller has not taken.
    pub(super) fn has_orders(&self, request: RequestId) -> bool {
        let inboxes = self.0.get(request.place() as usize);
        let mut inboxes = inboxes.into_iter().flatten();
        inboxes.any(|inbox| inbox.request == request && !inbox.orders.is_empty())
    }

    /// Takes the attempts that are the caller's: those that have not begun, and those that are not proved.
    pub(super) fn take_attempts(
        &mut self,
        request: RequestId,
    ) -> SmallVec<[(AttemptId, PathId); 1]> {
        let mut attempts = SmallVec::new();
        let Some(inbox) = self.get_mut(request) else { return attempts };
        for order in std::mem::take(&mut inbox.orders) {
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

    /// Takes the next order. [`Order::Completed`] is the last one, and closes the inbox.
    pub(super) fn take(&mut self, request: RequestId) -> Option<Order> {
        let inboxes = self.0.get_mut(request.place() as usize)?;
        let at = inboxes.iter().position(|inbox| inbox.request == request)?;
        let inbox = inboxes.get_mut(at)?;
        let order =
            if inbox.orders.len() > 1 { inbox.orders.remove(0) } else { inbox.orders.pop()? };
        inbox.waker = None;
        if let Order::Completed(_) = order {
            drop(inboxes.swap_remove(at));
        }
        Some(order)
    }

    /// Wakes the caller when there is an order.
    pub(super) fn wake(&mut self, request: RequestId, waker: &Waker) {
        if let Some(inbox) = self.get_mut(request) {
            match &mut inbox.waker {
                Some(before) => before.clone_from(waker),
                None => inbox.waker = Some(waker.clone()),
            }
        }
    }

    /// Closes the inbox of a request that its caller has given up. Returns what was left, to be dropped when no lock is held:
    /// buffers go back to where they came from.
    pub(super) fn close(&mut self, request: RequestId) -> Orders {
        let Some(inboxes) = self.0.get_mut(request.place() as usize) else { return Orders::new() };
        let Some(at) = inboxes.iter().position(|inbox| inbox.request == request) else {
            return Orders::new();
        };
        inboxes.swap_remove(at).orders
    }

    fn get_mut(&mut self, request: RequestId) -> Option<&mut Inbox> {
        let inboxes = self.0.get_mut(request.place() as usize)?;
        inboxes.iter_mut().find(|inbox| inbox.request == request)
    }
}
