//! How the handles of a session reach its driver.

use std::fmt;
use std::sync::Arc;

use iscsi_session::{Session, Stats};

use super::Driver;
use super::event_loop::EventLoop;
use super::lock::DriverLock;
use crate::driver::connector::Reach;
use crate::driver::peer::Peer;
use crate::driver::request::{Message, RequestId, Submission};
use crate::driver::shared::Shared;

/// A driver, to be asked. It is told when the last of these is dropped.
pub(crate) struct DriverHandle(Arc<DriverLock>);

impl DriverHandle {
    /// A driver that begins to connect, or to log in over a connection that stands, once its loop runs.
    pub(crate) fn start(
        session: Session,
        peer: Peer,
        shared: Arc<Shared>,
        reach: Reach,
    ) -> (Self, EventLoop) {
        let driver = Driver::new(session, peer, shared, reach);
        let driver = Arc::new(DriverLock::new(driver));
        (Self::of(&driver), EventLoop::new(driver))
    }

    fn of(driver: &Arc<DriverLock>) -> Self {
        driver.queue.join();
        Self(Arc::clone(driver))
    }

    /// A name for a request to hand over.
    pub(crate) fn next_id(&self) -> RequestId {
        self.0.next_id()
    }

    /// Hands a request to the session, immediately where nobody else has the driver, and sends it unless the event loop is to
    /// do that. What was handed over before comes before it. Its answer's sender is dropped with a driver that is gone.
    ///
    /// It is made where it goes: to move one from hand to hand costs more than to make it.
    pub(crate) fn submit(&self, make: impl FnOnce() -> Submission) {
        let Some(mut driver) = self.0.try_lock() else {
            return self.tell(Message::Submit(Box::new(make())));
        };
        match driver.as_mut() {
            Ok(driver) => {
                if driver.take(make, &self.0.queue) {
                    driver.send_by_caller();
                }
            }
            Err(_) => {
                // One for a driver that is gone is dropped without the lock.
                drop(driver);
                drop(make());
            }
        }
    }

    /// What the session has counted, also when it is over.
    pub(crate) fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Does something while somebody has the driver.
    #[cfg(test)]
    pub(crate) fn while_taken<R>(&self, act: impl FnOnce() -> R) -> R {
        self.0.with(|_| act()).unwrap()
    }

    /// Ends the driver, before anybody knows that its session is over.
    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Leaves a message. A driver that is gone does not hear of it.
    pub(crate) fn tell(&self, message: Message) {
        self.0.queue.send(message);
    }
}

impl Clone for DriverHandle {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for DriverHandle {
    fn drop(&mut self) {
        self.0.queue.leave();
    }
}

impl fmt::Debug for DriverHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverHandle").finish_non_exhaustive()
    }
}
