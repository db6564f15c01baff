//! Gives the handles of a session access to its driver.

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

/// A handle of a driver. When the last one is dropped, the session logs out.
pub(crate) struct DriverHandle(Arc<DriverLock>);

impl DriverHandle {
    /// Creates a driver, which connects, or logs in over an open connection, as soon as its event loop runs.
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

    /// Returns an identifier for a request to submit.
    pub(crate) fn next_id(&self) -> RequestId {
        self.0.next_id()
    }

    /// Hands a request to the session immediately; or leaves it in the queue, if another task holds the driver.
    /// Sends the request too, unless sending is left to the event loop. Requests that were submitted earlier
    /// come first. If the driver is gone, the request is dropped together with the sender of its result, so the
    /// caller sees the end.
    ///
    /// `make` creates the request where it is stored, since moving a request costs more than creating it.
    pub(crate) fn submit(&self, make: impl FnOnce() -> Submission) {
        let Some(mut driver) = self.0.try_lock() else {
            return self.send(Message::Submit(Box::new(make())));
        };
        match driver.as_mut() {
            Ok(driver) => {
                if driver.take(make, &self.0.queue) {
                    driver.send_by_caller();
                }
            }
            Err(_) => {
                // Dropping the request may need the lock, so the lock is released first.
                drop(driver);
                drop(make());
            }
        }
    }

    /// Returns the counters of the session, also after its end.
    pub(crate) fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Runs `act` while another task holds the driver.
    #[cfg(test)]
    pub(crate) fn while_taken<R>(&self, act: impl FnOnce() -> R) -> R {
        self.0.with(|_| act()).unwrap()
    }

    /// Closes the driver, as if its event loop had been dropped.
    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Leaves a message in the driver's queue; the message is dropped if the driver is gone.
    pub(crate) fn send(&self, message: Message) {
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
