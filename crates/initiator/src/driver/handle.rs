//! How the handles of a session reach its driver.

use std::fmt;
use std::sync::Arc;

use iscsi_session::Session;

use super::Driver;
use super::event_loop::EventLoop;
use super::lock::DriverLock;
use super::queue::{Sender, queue};
use crate::driver::connector::{Connected, Connector};
use crate::driver::peer::Peer;
use crate::driver::request::{Message, Submission};
use crate::driver::shared::Shared;

/// A driver, to be asked. It is told when the last of these is dropped.
#[derive(Clone)]
pub(crate) struct DriverHandle {
    driver: Arc<DriverLock>,
    messages: Sender,
}

impl DriverHandle {
    /// A driver that begins to connect, or to log in over a connection that stands, once its loop runs.
    pub(crate) fn start(
        session: Session,
        peer: Peer,
        shared: Arc<Shared>,
        connector: Connector,
        reached: Option<Connected>,
        connections: u16,
    ) -> (Self, EventLoop) {
        let (messages, queue) = queue();
        let driver = Driver::new(session, peer, shared, queue, connector, reached, connections);
        let driver = Arc::new(DriverLock::new(driver));
        (Self { driver: Arc::clone(&driver), messages }, EventLoop::new(driver))
    }

    /// Hands a request to the session, at once where nobody else has the driver. What was handed over before comes before
    /// it. Its answer's sender is dropped with a driver that is gone. Says whether the caller is to [send](Self::send) it.
    pub(crate) fn submit(&self, submission: Submission) -> bool {
        match self.driver.try_pass(submission, Driver::take) {
            Ok(is_to_send) => is_to_send.unwrap_or_default(),
            Err(submission) => {
                self.tell(Message::Submit(Box::new(submission)));
                false
            }
        }
    }

    /// Sends what was handed over and is not sent.
    pub(crate) fn send(&self) {
        self.driver.with(Driver::send_by_caller);
    }

    /// Does something while somebody has the driver.
    #[cfg(test)]
    pub(crate) fn while_taken<R>(&self, act: impl FnOnce() -> R) -> R {
        self.driver.with(|_| act()).unwrap()
    }

    /// Leaves a message. A driver that is gone does not hear of it.
    pub(crate) fn tell(&self, message: Message) {
        self.messages.send(message);
    }
}

impl fmt::Debug for DriverHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverHandle").finish_non_exhaustive()
    }
}
