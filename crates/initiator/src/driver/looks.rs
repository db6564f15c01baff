//! Where the driver meets the tuner: what the connection waits for, and how much may be under way.

use std::time::Duration;

use iscsi_tuner::TcpInfo;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Driver, Link, now};
use crate::pace;
use crate::reading::Reading;
use crate::tuner;

/// So long after its last request a session stops looking what it waits for: an idle one sleeps.
const DOZE: Duration = Duration::from_secs(1);

impl Driver {
    /// Looks what the connection waits for.
    pub(super) fn look(&mut self) {
        if !self.pending.is_empty() {
            self.awake_until = Instant::now() + DOZE;
        }
        let waiting = self.session.waiting_for();
        if let Link::Up(stream, tuner) = &mut self.link {
            tuner.look(stream, waiting, self.blocked);
            self.shared.set_facts(tuner.facts());
        }
        self.set_pace();
    }

    /// The command window is part of what transfers are fitted to.
    pub(super) fn note_window(&mut self) {
        if let Link::Up(_, tuner) = &mut self.link
            && tuner.offered(self.session.command_window())
        {
            self.shared.set_facts(tuner.facts());
        }
    }

    /// There is work again.
    pub(super) fn wake(&mut self) {
        self.count_rest();
        self.awake_until = self.awake_until.max(Instant::now() + DOZE);
    }

    /// The time in which nobody looked, because there was no work, counts as waiting for work.
    pub(super) fn count_rest(&mut self) {
        let now = Instant::now();
        let rest = now.saturating_duration_since(self.awake_until);
        // Less than a look is left for the next time.
        if rest < tuner::LOOK {
            return;
        }
        if let Link::Up(_, tuner) = &mut self.link {
            tuner.rested(rest);
        }
        self.awake_until = now;
        // The look that is overdue would always meet the work that has ended the rest.
        self.looks.reset();
    }

    /// Without a connection there is nothing to tell: whoever waits sees the end of the session.
    pub(super) fn tell(&mut self, answer: oneshot::Sender<Reading>) {
        self.count_rest();
        let stats = self.session.stats();
        if let Link::Up(stream, tuner) = &mut self.link {
            // Nobody need wait for it any more.
            drop(answer.send(tuner.reading(stream, &stats, now())));
        }
    }

    /// Without a word of the kernel there is no limit.
    pub(super) fn set_pace(&mut self) {
        if let Link::Up(stream, _) = &self.link {
            let limit = TcpInfo::read(stream).ok().and_then(|info| pace::write_limit(&info));
            self.session.limit_writes(limit.unwrap_or(u64::MAX));
        }
    }
}
