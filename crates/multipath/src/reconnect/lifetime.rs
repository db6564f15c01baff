//! Counts sessions of a path that end soon after their login.

use std::time::{Duration, Instant};

use crate::reconnect::back_off::BackOff;

/// Minimum duration of a session that does not count as ended soon.
const LASTING: Duration = Duration::from_secs(10);

/// Start of a session, and the number of consecutive sessions before it that ended soon.
///
/// This prevents a tight loop of logins to a target that accepts every login and ends each session soon
/// after, even if the target states no Time2Wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lifetime {
    since: Instant,
    /// Number of consecutive sessions before this one that ended soon.
    quick_ends: u32,
}

impl Lifetime {
    /// Creates the lifetime of a session that replaces no other one.
    #[must_use]
    pub const fn begin(now: Instant) -> Self {
        Self { since: now, quick_ends: 0 }
    }

    /// Ends the session. Returns the minimum wait before the next login, and the new number of consecutive
    /// sessions that ended soon.
    pub(super) fn end(self, pauses: BackOff, now: Instant) -> (Duration, u32) {
        let is_quick = now.saturating_duration_since(self.since) < LASTING;
        let quick_ends = if is_quick { self.quick_ends.saturating_add(1) } else { 0 };
        let pause = quick_ends.checked_sub(1).map(|count| pauses.after(count).next());
        (pause.unwrap_or_default(), quick_ends)
    }

    /// Creates the lifetime of a session that replaces another one.
    pub(super) const fn next(quick_ends: u32, now: Instant) -> Self {
        Self { since: now, quick_ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn sessions_that_do_not_last_are_not_opened_in_a_tight_loop() {
        let back_off = BackOff::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut now = Instant::now();
        let mut lifetime = Lifetime::begin(now);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            now += Duration::from_secs(1);
            let (pause, quick_ends) = lifetime.end(back_off, now);
            pauses.push(pause.as_millis());
            lifetime = Lifetime::next(quick_ends, now);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(lifetime.end(back_off, now + LASTING), (Duration::ZERO, 0));
    }
}
