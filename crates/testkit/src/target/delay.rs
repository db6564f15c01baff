//! Responses that a fault delays. The target has no clock: the caller passes the time.

use std::time::Instant;

use super::connection::Delayed;
use super::node::Target;
use crate::conn_id::ConnId;

impl Target {
    /// Sets the time to `now`, sends the delayed responses that are due, and executes the delayed commands
    /// that are due. A delay starts at the first call after the command, so call this after each
    /// [`Target::receive`], and again at [`Target::deadline`] and [`Target::next_execution`]. Without delays,
    /// such as [`Effect::Delay`](crate::fault::Effect::Delay), calls are not necessary.
    pub fn advance(&mut self, now: Instant) {
        self.catch_up();
        self.execute_late(now);
        for waiting in &mut self.kept_back.delayed {
            waiting.due.get_or_insert(now + waiting.delay);
        }
        let due = |waiting: &mut Delayed| waiting.due.is_some_and(|due| due <= now);
        for Delayed { connection, outgoing, .. } in
            self.kept_back.delayed.extract_if(.., due).collect::<Vec<_>>()
        {
            self.enqueue(connection, outgoing);
        }
    }

    /// Returns when the next delayed response of a connection is due.
    #[must_use]
    pub fn deadline(&self, id: ConnId) -> Option<Instant> {
        let own = self.kept_back.delayed.iter().filter(|waiting| waiting.connection == id);
        own.filter_map(|waiting| waiting.due).min()
    }
}
