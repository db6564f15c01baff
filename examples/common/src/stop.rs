//! The wish to stop early.

use std::future::pending;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// How long each of the last steps may take once the work shall stop: what is under way, the goodbye,
/// the last word. Together they take about three seconds at most. A disk that is busy flushes in that time, and a
/// target far away answers; who does not want to wait for them sends the signal again.
pub const HASTE: Duration = Duration::from_secs(1);
/// A file is to grow beyond the limit of the process (`ulimit -f`).
const FILE_SIZE: SignalKind = SignalKind::from_raw(libc::SIGXFSZ);
/// A standard error that takes nothing for so long is not read, and the work may be stuck in it.
const UNHEARD: Duration = Duration::from_millis(900);

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

    /// A wish that SIGINT and SIGTERM express: at the first of them `tell` says so on standard error,
    /// the second ends the process with `status`. So does the first where nobody takes what `tell`
    /// says. From now on none of them ends the process by itself, and a file that grows beyond its
    /// limit (SIGXFSZ) does not either. A thread of its own waits for them until the process ends,
    /// whatever else is stuck.
    ///
    /// # Errors
    /// When the system does not let the process have its signals, or a thread.
    pub fn at_signal(tell: impl FnOnce() + Send + 'static, status: u8) -> io::Result<Self> {
        let (button, stop) = Self::new();
        let (ready, outcome) = mpsc::sync_channel(1);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let result = watch_signals(button, tell, status, || drop(ready.send(Ok(()))));
            // Where it began to watch there is no end of it.
            drop(result.map_err(|error| ready.send(Err(error))));
        })?;
        outcome.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)))?;
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
            pending().await
        }
    }

    /// Waits for a future, unless the work shall stop before: then there is `None`.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.requested() => None,
        }
    }

    /// Waits for a future; once the work shall stop, no longer than [`HASTE`]: then there is `None`.
    pub async fn hurry<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = async { self.requested().await; sleep(HASTE).await } => None,
        }
    }
}

impl StopButton {
    /// Tells the work to stop.
    pub fn press(&self) {
        self.0.send_replace(true);
    }
}

/// Ends the process once it was told to end and does not, or is told again; returns only where the
/// signals cannot be had. `ready` is called when they are.
fn watch_signals(
    button: StopButton,
    tell: impl FnOnce() + Send + 'static,
    status: u8,
    ready: impl FnOnce(),
) -> io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        // What is written beyond the limit fails then, and that can be told.
        drop(signal(FILE_SIZE)?);
        ready();
        press_at_signal(button, tell, &mut signals).await;
        std::process::exit(status.into())
    })
}

/// Presses the button at the first signal; returns at the second, or where `tell` is stuck.
async fn press_at_signal(
    button: StopButton,
    tell: impl FnOnce() + Send + 'static,
    signals: &mut [Signal; 2],
) {
    next(signals).await;
    let obey = async {
        if timeout(UNHEARD, spawn_blocking(tell)).await.is_ok() {
            button.press();
            pending().await
        }
    };
    tokio::select! {
        () = obey => {}
        () = next(signals) => {}
    }
}

async fn next([interrupt, terminate]: &mut [Signal; 2]) {
    tokio::select! {
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

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

    #[tokio::test(start_paused = true)]
    async fn what_hurries_is_given_up_a_moment_after_the_wish() {
        let (button, stop) = Stop::new();
        let slow = Duration::from_secs(3600);
        assert_eq!(stop.hurry(sleep(slow)).await, Some(()), "nobody wanted it to stop");
        button.press();
        assert_eq!(stop.hurry(sleep(HASTE / 2)).await, Some(()));
        assert_eq!(stop.hurry(pending::<()>()).await, None);
        assert_eq!(stop.unless(ready(7)).await, Some(7), "what has ended counts");
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
