//! The wish to stop early.

use tokio::sync::watch;

use crate::error::Error;

/// Whether a copy shall stop. Clones are the same wish.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Tells a copy to stop.
#[derive(Debug)]
pub struct StopButton(watch::Sender<bool>);

impl Stop {
    /// A wish that nobody has yet, and the button that expresses it.
    pub fn new() -> (StopButton, Self) {
        let (sender, receiver) = watch::channel(false);
        (StopButton(sender), Self(receiver))
    }

    /// A wish that nobody will ever have.
    pub fn never() -> Self {
        Self::new().1
    }

    /// Waits until the copy shall stop.
    pub async fn requested(&self) {
        if self.0.clone().wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could want it.
            std::future::pending().await
        }
    }

    /// Waits for a future, unless the copy shall stop before.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or as the future.
    pub async fn unless<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            result = work => result,
            () = self.requested() => Err(Error::Interrupted),
        }
    }
}

impl StopButton {
    /// Tells the copy to stop.
    pub fn press(&self) {
        self.0.send_replace(true);
    }
}
