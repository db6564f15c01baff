//! Lets callers wait until the unit of a session is confirmed.

use std::sync::Arc;

use iscsi_multipath::PathId;
use iscsi_multipath::revalidating::{End, Revalidations, Step, Terms, WaiterId};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::error::Error;
use crate::state::unit_lock::{GuardBeside, Guarded, UnitLock};

type Answer = Result<(), Error>;

/// The revalidation of one path, and the callers that wait for it.
#[derive(Debug)]
pub(crate) struct Revalidating {
    owner: Guarded<Owner>,
    /// Notified when a caller stops waiting.
    left: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Owner {
    revalidations: Revalidations,
    waiting: Vec<(WaiterId, oneshot::Sender<Answer>)>,
}

/// A caller that waits for a revalidation, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    revalidating: Arc<Revalidating>,
    id: WaiterId,
    answer: oneshot::Receiver<Answer>,
}

/// The caller that polls the revalidation on behalf of all callers, until no caller waits. If this caller
/// is dropped earlier, the other callers receive the error that the session has ended.
#[derive(Debug)]
pub(crate) struct Asker {
    revalidating: Arc<Revalidating>,
    path: PathId,
    is_idle: bool,
}

impl Revalidating {
    pub(crate) fn new(unit: &Arc<UnitLock>) -> Self {
        Self { owner: Guarded::new(unit, Owner::default()), left: Arc::default() }
    }

    /// Adds a caller. The first caller becomes the asker.
    pub(crate) fn wait(self: &Arc<Self>, path: PathId, terms: &Terms) -> (Waiter, Option<Asker>) {
        let (sender, answer) = oneshot::channel();
        let mut owner = self.lock();
        let (id, is_first) = owner.revalidations.wait(path, terms, Instant::now().into_std());
        owner.waiting.push((id, sender));
        drop(owner);
        let [of_waiter, of_asker] = [(); 2].map(|()| Arc::clone(self));
        let asker = is_first.then(|| Asker { revalidating: of_asker, path, is_idle: false });
        (Waiter { revalidating: of_waiter, id, answer }, asker)
    }

    fn lock(&self) -> GuardBeside<'_, Owner> {
        self.owner.lock()
    }
}

impl Owner {
    fn take(&mut self, waiter: WaiterId) -> Option<oneshot::Sender<Answer>> {
        let at = self.waiting.iter().position(|(id, _)| *id == waiter)?;
        Some(self.waiting.swap_remove(at).1)
    }
}

impl Waiter {
    /// Waits for the result of the revalidation.
    ///
    /// # Errors
    /// The reason why the unit is not confirmed.
    pub(crate) async fn answer(mut self) -> Answer {
        (&mut self.answer).await.unwrap_or(Err(Error::closed()))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut owner = self.revalidating.lock();
        if owner.take(self.id).is_some() {
            owner.revalidations.cancel(self.id);
            drop(owner);
            self.revalidating.left.notify_waiters();
        }
    }
}

impl Asker {
    /// Returns the notification that a caller has stopped waiting.
    pub(crate) fn left(&self) -> Arc<Notify> {
        Arc::clone(&self.revalidating.left)
    }

    pub(crate) fn poll(&mut self) -> Step {
        let now = Instant::now().into_std();
        let mut guard = self.revalidating.lock();
        let (owner, unit) = guard.both();
        let step = owner.revalidations.poll(self.path, unit, now);
        self.is_idle = matches!(step, Step::Idle);
        step
    }

    /// Returns the time at which the next poll is due even if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.revalidating.lock().revalidations.poll_timeout(self.path).map(Instant::from_std)
    }

    pub(crate) fn on_end(&self, question: u32, end: End<'_>) {
        self.revalidating.lock().revalidations.on_end(self.path, question, end);
    }

    pub(crate) fn answer(&self, waiter: WaiterId, answer: Answer) {
        let sender = self.revalidating.lock().take(waiter);
        // The caller may have stopped waiting meanwhile, so an error of the send is ignored.
        drop(sender.map(|sender| sender.send(answer)));
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.is_idle {
            let mut owner = self.revalidating.lock();
            let waiting = owner.revalidations.remove(self.path);
            let senders: Vec<_> = waiting.into_iter().map(|waiter| owner.take(waiter)).collect();
            drop(owner);
            drop(senders);
        }
    }
}
