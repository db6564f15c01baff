//! The wish to stop early.

use tokio::sync::watch;

/// Whether the examination shall stop. Clones are the same wish.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Tells an examination to stop.
#[derive(Debug)]
pub struct StopButton(watch::Sender<bool>);

impl Stop {
    /// A wish that nobody has yet, and the button that expresses it.
    #[must_use]
    pub fn new() -> (StopButton, Self) {
        let (sender, receiver) = watch::channel(false);
        (StopButton(sender), Self(receiver))
    }

    /// A wish that nobody will ever have.
    #[must_use]
    pub fn never() -> Self {
        Self::new().1
    }

    /// Whether the wish was expressed.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the examination shall stop.
    pub async fn requested(&self) {
        if self.0.clone().wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could want it.
            std::future::pending().await
        }
    }

    /// Waits for a future, unless the examination shall stop before: then there is `None`.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.requested() => None,
        }
    }
}

impl StopButton {
    /// Tells the examination to stop.
    pub fn press(&self) {
        self.0.send_replace(true);
    }
}
