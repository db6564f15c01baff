//! The clock of the world, which runs on while all processes are stopped.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

thread_local! {
    /// How far the clock of the world is ahead of the processes' clock, which is the runtime's.
    static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// How long the processes were stopped, in all episodes of the thread.
    static STOPPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the time in the world.
pub(crate) fn now() -> Instant {
    Instant::now() + AHEAD.get()
}

/// Sets how far the clock of the world is ahead of the processes' clock.
pub(crate) fn set_ahead(ahead: Duration) {
    AHEAD.set(ahead);
}

/// Adds a time for which the processes were stopped.
pub(crate) fn add_stop(lasts: Duration) {
    STOPPED.set(STOPPED.get() + lasts);
}

/// Returns how long the processes were stopped so far. Only differences have a meaning.
pub(crate) fn stopped() -> Duration {
    STOPPED.get()
}
