//! Requests that wait for a path, in their order.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use iscsi_multipath::paths::Requirements;

/// Requests that wait for a grant `G` of a path: first come, first served, but for those that ask
/// for what no path can give them now.
#[derive(Debug)]
pub(super) struct Queue<G>(VecDeque<QueuedRequest<G>>);

/// A request that waits.
#[derive(Debug)]
pub(super) struct QueuedRequest<G> {
    /// Bytes that it moves.
    pub(super) len: u64,
    pub(super) requirements: Requirements,
    answer: oneshot::Sender<G>,
}

impl<G> Queue<G> {
    /// The last in the line. The grant comes through the receiver, or its end when the line is
    /// [cleared](Self::clear).
    pub(super) fn push_back(
        &mut self,
        len: u64,
        requirements: Requirements,
    ) -> oneshot::Receiver<G> {
        let (answer, granted) = oneshot::channel();
        self.0.push_back(QueuedRequest { len, requirements, answer });
        granted
    }

    /// The first in the line: a request that has waited before.
    pub(super) fn push_front(
        &mut self,
        len: u64,
        requirements: Requirements,
    ) -> oneshot::Receiver<G> {
        let (answer, granted) = oneshot::channel();
        self.0.push_front(QueuedRequest { len, requirements, answer });
        granted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the request at a place in the line out of it, if there is one.
    pub(super) fn take(&mut self, at: usize) -> Option<QueuedRequest<G>> {
        self.0.remove(at)
    }

    /// Gives a request that was taken its place back.
    pub(super) fn put_back(&mut self, at: usize, waiting: QueuedRequest<G>) {
        self.0.insert(at, waiting);
    }

    /// Nobody is granted anything any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<G> QueuedRequest<G> {
    /// Whether nobody waits for the grant any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Grants it; the grant comes back if nobody waits for it any more.
    pub(super) fn grant(self, grant: G) -> Result<(), G> {
        self.answer.send(grant)
    }
}

impl<G> Default for Queue<G> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}
