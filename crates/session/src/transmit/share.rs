//! Distribution of waiting commands over several connections (RFC 7143 §4.2.2).
//!
//! A connection takes commands when it is polled, up to a load that depends on all connections: the load at
//! which all connections that can take commands would be equally full, in proportion to their limits. So the
//! order in which they are polled does not matter: commands that one connection leaves are taken by another
//! one.
//!
//! A connection whose socket is full, or that has become silent, gets no new commands, so that no command
//! waits for it.

use std::time::Duration;

use iscsi_pdu::Cid;

use crate::connection::Connection;
use crate::session::Session;

/// How much longer than another connection a connection with commands in flight may be silent before it gets
/// no new commands.
const MAX_SILENCE: Duration = Duration::from_secs(1);

impl Session {
    /// Sets the load up to which a connection may take new commands.
    pub(super) fn set_share(&mut self, cid: Cid) {
        let share = self.share_of(cid);
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.transmitter.set_share(share);
        }
    }

    fn share_of(&self, cid: Cid) -> u64 {
        let Some(connection) = self.connections.get(cid) else { return 0 };
        if self.connections.len() == 1 {
            return u64::MAX;
        }
        if self.is_silent(connection) {
            return 0;
        }
        let others = || {
            let others = self.connections.iter().filter(|other| other.cid() != cid);
            others.filter(|other| self.is_ready(other))
        };
        if others().next().is_none() {
            return u64::MAX;
        }
        let all = || others().chain([connection]);
        let limit = |connection: &Connection| connection.transmitter.write_limit();
        let largest = all().filter_map(limit).max().unwrap_or(1);
        let weight = |connection: &Connection| limit(connection).unwrap_or(largest);
        let load: u128 = all().map(|other| u128::from(self.tasks.load_of(other.cid()).bytes)).sum();
        let weights: u128 = all().map(|other| u128::from(weight(other))).sum();
        let waiting = self.commands.load(self.window(), &self.tasks);
        let total = load + u128::from(waiting);
        let share = (total * u128::from(weight(connection))).div_ceil(weights.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns whether a connection would take a new command if it were polled now.
    fn is_ready(&self, connection: &Connection) -> bool {
        let first = self.commands.first(&self.tasks);
        connection.takes_commands()
            && connection.is_idle()
            && !self.is_silent(connection)
            && !first.is_some_and(|(_, task)| connection.is_at_limit(task, &self.tasks))
    }

    /// Returns whether no bytes have moved for long on a connection that has tasks, while they have moved on
    /// another connection.
    fn is_silent(&self, connection: &Connection) -> bool {
        let up = self.connections.iter().filter(|other| other.is_up());
        let latest = up.map(|other| other.liveness.last_progress()).max();
        let silence =
            latest.map(|latest| latest.duration_since(connection.liveness.last_progress()));
        self.tasks.load_of(connection.cid()).bytes > 0
            && silence.is_some_and(|silence| silence > MAX_SILENCE)
    }
}
