//! The time in the world, which goes on while the processes of all hosts have stopped.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

thread_local! {
    /// How far the world is ahead of the processes, whose clock is the runtime's.
    static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// What time it is in the world.
pub(crate) fn now() -> Instant {
    Instant::now() + AHEAD.get()
}

/// The world is so far ahead of the processes.
pub(crate) fn set_ahead(ahead: Duration) {
    AHEAD.set(ahead);
}
