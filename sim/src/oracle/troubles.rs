//! Judges episodes whose only fault is one kind of trouble that ends in time: no request may fail, and no
//! session may be lost because responses are missing.

use std::time::Duration;

use iscsi_initiator::{Error, ErrorKind};

use crate::busy::Silence;
use crate::clock;
use crate::settings::Class;
use crate::world::World;

/// Time limit of a read that another portal can serve. A dead session is detected within 45 s. Then the disk
/// reconnects over the other portal, with pauses of up to 30 s between attempts.
const MAX_DETOUR: Duration = Duration::from_secs(150);

/// Longest busy period in which no session may be lost: the time limit of a command is 60 s.
const MAX_SILENCE: Duration = Duration::from_secs(58);

impl World {
    /// Returns the violation if a read took too long.
    pub(crate) fn forbids_wait(&self, took: Duration, portals: usize) -> Option<String> {
        let is_late = self.alone == Some(Class::Partition) && portals > 1 && took > MAX_DETOUR;
        is_late.then(|| format!("one portal alone is cut off, but a read has taken {took:?}"))
    }

    /// Returns the violation if a request failed. The disk has `portals` portals, and its retry timeout exceeds
    /// every trouble.
    pub(crate) fn forbids(&self, error: &Error, portals: usize) -> Option<String> {
        let alone = self.alone?;
        // Each trouble ends early enough to reconnect within the retry timeout. Writes in flight to a cut
        // portal stay unsettled until it is back, which may take longer. But only one portal is cut at a time.
        let may_pass =
            alone != Class::Partition || portals > 1 && error.kind() != ErrorKind::Unsettled;
        may_pass
            .then(|| format!("only {alone} is wrong, and passes, but a request failed: {error}"))
    }

    /// Returns whether unread data must be inspected.
    pub(crate) fn watches_unread(&self) -> bool {
        matches!(self.alone, Some(Class::BusyTarget | Class::SlowStore))
    }

    /// Makes a target busy for a time.
    pub(crate) fn silence(&mut self, target: usize, lasts: Duration) {
        self.silences.insert(target, Silence::of(lasts));
        self.trace.record("a target is busy", &[target as u64, lasts.as_secs()]);
    }

    /// Returns the violation if the initiator gives up a connection although the only fault is a busy target
    /// or a stopped process. Logins, aborts and logouts are excepted: their time limits are short, and when
    /// such a limit expires, all connections of the session end.
    pub(crate) fn lost_for_silence(&self, number: u64) -> Option<String> {
        let wire = self.wires.get(&number).filter(|wire| !wire.is_reset && !wire.is_at_end)?;
        let mut others = self.wires.values().filter(|other| other.process == wire.process);
        if !wire.has_answered || others.any(|other| other.unread.has_request) {
            return None;
        }
        if self.alone == Some(Class::Stop) {
            return Some("a session is lost, though only its own process had stopped".to_owned());
        }
        let of_target = self.silences.get(&self.portals[wire.portal].target).copied();
        let silence = of_target.or(wire.unread.silence)?;
        let lasts = clock::now().duration_since(silence.since);
        let target = &self.targets[self.portals[wire.portal].target];
        let is_busy = wire.unread.has_command || target.has_task_on(wire.connection);
        let is_quiet = wire.to_initiator.is_quiet(clock::now());
        let acknowledges = wire.is_all_acknowledged(clock::now(), &self.shape);
        // Without room in the buffers, an abort may wait until the target has read earlier data.
        let has_room = wire.room(&self.shape) > 0;
        let may_not = self.watches_unread()
            && is_busy
            && is_quiet
            && acknowledges
            && has_room
            && lasts < MAX_SILENCE;
        may_not.then(|| {
            format!("a session is lost, though its target has been busy for only {lasts:?}")
        })
    }
}
