//! How a command under way is given up by somebody who does not wait for it.

use tokio::sync::watch;

/// Gives a command up: what has not been sent is not sent, and what was sent is aborted. Whoever waits
/// for the command waits on, until the session has finished with it. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancellation(watch::Sender<bool>);

impl Cancellation {
    /// Gives the command up; one that has ended stays as it is.
    pub(crate) fn cancel(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the command is given up.
    pub(crate) async fn cancelled(&self) {
        // The sender is there as long as this is.
        drop(self.0.subscribe().wait_for(|is_cancelled| *is_cancelled).await);
    }
}
