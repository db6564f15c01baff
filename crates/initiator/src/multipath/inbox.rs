//! What the requests of a disk are to do next, until their callers take it.

use std::task::Waker;

use iscsi_multipath::PathId;
use iscsi_multipath::requests::{AttemptId, Failure, Report, RequestId};
use smallvec::SmallVec;

use crate::error::Error;
use crate::multipath::path::Path;
use crate::state::counters::RequestKind;

/// One attempt of a request: its command is to be sent over the path `carrier`.
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) path: PathId,
    pub(super) carrier: Path,
    /// Whether the command goes in ten bytes.
    pub(super) is_short: bool,
    /// Whether it is the second copy, for which memory was reserved.
    pub(super) is_hedge: bool,
    /// Whether there was no other path by then, so that the request is not hedged.
    pub(super) is_only: bool,
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
    Completed(Result<AttemptId, Failure<Error>>),
}

/// The orders for each request that has not taken the last one, by its [place](RequestId::place). Two requests have the same
/// place if one has completed and does not know yet.
#[derive(Default)]
pub(super) struct Inboxes(Vec<SmallVec<[Inbox; 1]>>);

struct Inbox {
    request: RequestId,
    /// What it counts as, and the bytes that it moves.
    counts_as: (RequestKind, u64),
    orders: SmallVec<[Order; 1]>,
    waker: Option<Waker>,
}

/// The callers that have new orders. They are woken when no lock is held.
pub(super) type Wakers = SmallVec<[Waker; 2]>;

impl Inboxes {
    /// Opens the inbox of a request that is submitted.
    pub(super) fn open(&mut self, request: RequestId, counts_as: (RequestKind, u64)) {
        let place = request.place() as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, SmallVec::new);
        }
        let inbox = Inbox { request, counts_as, orders: SmallVec::new(), waker: None };
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

    /// Whether a request has orders that its caller has not taken.
    pub(super) fn has_orders(&self, request: RequestId) -> bool {
        let inboxes = self.0.get(request.place() as usize);
        let mut inboxes = inboxes.into_iter().flatten();
        inboxes.any(|inbox| inbox.request == request && !inbox.orders.is_empty())
    }

    /// Takes the attempts that have not begun.
    pub(super) fn take_attempts(&mut self, request: RequestId) -> SmallVec<[Attempt; 1]> {
        let mut attempts = SmallVec::new();
        let Some(inbox) = self.get_mut(request) else { return attempts };
        for order in std::mem::take(&mut inbox.orders) {
            if let Order::Send(attempt) = order {
                attempts.push(attempt);
            } else {
                inbox.orders.push(order);
            }
        }
        attempts
    }

    /// Takes the next order. [`Order::Completed`] closes the inbox.
    pub(super) fn take(&mut self, request: RequestId) -> Option<Order> {
        let inbox = self.get_mut(request).filter(|inbox| !inbox.orders.is_empty())?;
        inbox.waker = None;
        let order = inbox.orders.remove(0);
        if let Order::Completed(_) = order {
            self.close(request);
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

    /// Closes the inbox of a request that its caller has given up.
    pub(super) fn close(&mut self, request: RequestId) {
        if let Some(inboxes) = self.0.get_mut(request.place() as usize) {
            inboxes.retain(|inbox| inbox.request != request);
        }
    }

    fn get_mut(&mut self, request: RequestId) -> Option<&mut Inbox> {
        let inboxes = self.0.get_mut(request.place() as usize)?;
        inboxes.iter_mut().find(|inbox| inbox.request == request)
    }
}
