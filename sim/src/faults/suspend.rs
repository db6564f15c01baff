//! Stopped processes, while the rest of the world runs on.

use std::time::Duration;

use tokio::time::{Instant, advance};

use crate::clock;
use crate::world::Shared;

/// Stops all processes for a time, as SIGSTOP does. Data still arrives in their sockets. Afterwards all overdue
/// timers fire immediately.
pub(super) async fn suspend(shared: &Shared, lasts: Duration) {
    go_on_alone(shared, lasts);
    clock::add_stop(lasts);
    advance(lasts).await;
}

fn go_on_alone(shared: &Shared, lasts: Duration) {
    let mut world = shared.lock();
    let begun = Instant::now();
    loop {
        let next = world.turn().unwrap_or(begun + lasts);
        let elapsed = next.duration_since(begun);
        if elapsed >= lasts {
            break;
        }
        clock::set_ahead(elapsed);
    }
    clock::set_ahead(Duration::ZERO);
}
