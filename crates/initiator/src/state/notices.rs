//! Delivers notices of a target to subscribers.

use std::future::poll_fn;
use std::task::{Context, Poll};

use iscsi_session::Notice;

use crate::events::publisher::{Publisher, Subscription};

/// Notices of a target: a subscription from [`Session::notices`](crate::Session::notices).
///
/// The subscription receives the notices that the target sends after the call, until the session ends. Up to
/// 64 notices wait for a slow receiver; after that the oldest ones are dropped, and [`missed`](Self::missed)
/// counts them.
#[derive(Debug)]
pub struct Notices(Subscription<Notice>);

impl Notices {
    pub(crate) fn of(announcer: &Publisher<Notice>) -> Self {
        Self(announcer.subscribe())
    }

    /// Waits for the next notice; `None` when the session has ended and all notices have been received.
    /// Dropping the future loses no notice.
    pub async fn recv(&mut self) -> Option<Notice> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Polls for the next notice, for a hand-written future or stream: `Ready(None)` when the
    /// session has ended and all notices have been received.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.0.poll_next(context)
    }

    /// Returns how many notices were dropped because they were not received in time.
    pub fn missed(&self) -> u64 {
        self.0.missed()
    }
}
