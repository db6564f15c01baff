//! Portals without a session, while others have several.
//!
//! A lost session comes back over another portal where its own does not answer, and stays there. Once its
//! own does, the sessions are to be spread over both again.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two looks at a portal.
const INTERVAL: Duration = Duration::from_secs(60);

/// When portals without a session are looked at again.
#[derive(Debug)]
pub(super) struct UnusedPortals {
    /// The next look begins with this one.
    next: usize,
    /// A session is being opened with one.
    is_looking: bool,
    /// The last look, or the last time that each had one, or none had two.
    since: Instant,
}

impl UnusedPortals {
    pub(super) fn new() -> Self {
        Self { next: 0, is_looking: false, since: Instant::now() }
    }

    /// The portal to look at now, by the sessions that each has; `None` stands for a portal that is not to
    /// be looked at.
    pub(super) fn due(&mut self, sessions: &[Option<u32>]) -> Option<usize> {
        let all = sessions.iter().enumerate();
        let mut unused = all.filter(|(_, count)| **count == Some(0)).map(|(portal, _)| portal);
        let first = unused.clone().next();
        let unused = unused.find(|portal| *portal >= self.next).or(first);
        let Some(portal) = unused.filter(|_| most_used(sessions).is_some()) else {
            self.since = Instant::now();
            return None;
        };
        if self.is_looking || self.since.elapsed() < INTERVAL {
            return None;
        }
        (self.next, self.is_looking, self.since) = (portal + 1, true, Instant::now());
        Some(portal)
    }

    /// A look has ended.
    pub(super) const fn looked(&mut self) {
        self.is_looking = false;
    }
}

/// The portal with the most sessions, if there are several.
pub(super) fn most_used(sessions: &[Option<u32>]) -> Option<usize> {
    let counts = sessions.iter().enumerate().map(|(portal, count)| (count.unwrap_or(0), portal));
    counts.max().filter(|(count, _)| *count > 1).map(|(_, portal)| portal)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unused_portals_are_looked_at_in_turn_where_others_have_several_sessions() {
        let mut unused = UnusedPortals::new();
        let moved = [Some(0), Some(2), Some(0), None];
        advance(INTERVAL).await;
        assert_eq!(unused.due(&[Some(0), Some(1)]), None, "it would be no better there");
        assert_eq!(unused.due(&[Some(1), Some(2)]), None);
        assert_eq!(unused.due(&[None, Some(2)]), None);
        assert_eq!(unused.due(&moved), None, "it has been so for a moment");
        advance(INTERVAL).await;
        assert_eq!(unused.due(&moved), Some(0));
        advance(INTERVAL).await;
        assert_eq!(unused.due(&moved), None, "never two at a time");
        unused.looked();
        assert_eq!(unused.due(&moved), Some(2));
        unused.looked();
        advance(INTERVAL).await;
        assert_eq!(unused.due(&moved), Some(0));
    }
}
