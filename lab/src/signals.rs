//! Catches the signals that end a run.

use nix::sys::signal::Signal as Kind;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// Interrupt, termination and hang-up. While they are caught, they do not end the process.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to catch the signals.
    ///
    /// # Errors
    /// [`Error::System`] if the system refuses.
    pub fn catch() -> Result<Self, Error> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Kind {
        tokio::select! {
            _ = self.interrupt.recv() => Kind::SIGINT,
            _ = self.terminate.recv() => Kind::SIGTERM,
            _ = self.hang_up.recv() => Kind::SIGHUP,
        }
    }
}
