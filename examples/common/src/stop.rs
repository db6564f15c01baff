//! The wish to stop early.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Whether a program's work shall stop. Clones are the same wish.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Tells the work to stop.
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

    /// A wish that SIGINT and SIGTERM express: the first of them says `told` on standard error, the
    /// second ends the process with `status`. From now on a signal does not end the process by
    /// itself.
    ///
    /// # Errors
    /// When the system does not let the process have its signals.
    ///
    /// # Panics
    /// Outside of a tokio runtime that watches for signals.
    pub fn at_signal(told: &'static str, status: u8) -> io::Result<Self> {
        let (button, stop) = Self::new();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        tokio::spawn(press_at_signal(button, told, status, [interrupt, terminate]));
        Ok(stop)
    }

    /// Whether the wish was expressed.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the work shall stop.
    pub async fn requested(&self) {
        if self.0.clone().wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could want it.
            std::future::pending().await
        }
    }

    /// Waits for a future, unless the work shall stop before: then there is `None`.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.requested() => None,
        }
    }
}

impl StopButton {
    /// Tells the work to stop.
    pub fn press(&self) {
        self.0.send_replace(true);
    }
}

async fn press_at_signal(button: StopButton, told: &str, status: u8, signals: [Signal; 2]) {
    let [mut interrupt, mut terminate] = signals;
    for asked_before in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
        if asked_before {
            std::process::exit(status.into());
        }
        eprintln!("{told}");
        button.press();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn work_goes_on_until_the_button_is_pressed() {
        let (button, stop) = Stop::new();
        assert_eq!(stop.unless(ready(7)).await, Some(7));
        let worker = tokio::spawn({
            let stop = stop.clone();
            async move { stop.unless(pending::<()>()).await }
        });
        assert!(!stop.is_requested());
        button.press();
        assert_eq!(worker.await.unwrap(), None);
        assert!(stop.is_requested());
    }

    #[tokio::test]
    async fn a_button_that_is_gone_was_not_pressed() {
        let stop = Stop::never();
        let mut requested = Box::pin(stop.requested());
        for _ in 0..10 {
            tokio::select! {
                biased;
                () = &mut requested => panic!("nobody wanted it to stop"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}
