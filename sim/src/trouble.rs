//! Where one thing alone goes wrong, and passes in time, no request fails for it, and no session is lost to silence.

use std::time::Duration;

use iscsi_initiator::Error;

use crate::busy::Silence;
use crate::clock;
use crate::settings::Class;
use crate::world::World;

/// A read that another portal can serve takes no longer: a session that has lost its host is known to have within 45 s, and
/// comes back over the other portal at one of the tries that follow, the pauses of which grow to 30 s.
const MAX_DETOUR: Duration = Duration::from_secs(150);

/// A command has its own time limit, which is 60 s: a target that is busy for less long loses no session.
const MAX_SILENCE: Duration = Duration::from_secs(58);

impl World {
    /// Why a read may not take so long.
    pub(crate) fn forbids_wait(&self, took: Duration, portals: usize) -> Option<String> {
        let is_late = self.alone == Some(Class::Partition) && portals > 1 && took > MAX_DETOUR;
        is_late.then(|| format!("one portal alone is cut off, but a read has taken {took:?}"))
    }

    /// Why a request may not fail so, of a disk that has so many portals to go to and waits for its sessions as long as
    /// troubles last at most.
    pub(crate) fn forbids(&self, error: &Error, portals: usize) -> Option<String> {
        let alone = self.alone?;
        // Each trouble has an end, after which there is time to come back, before the patience is over. What was on its way
        // to a portal that is cut off stays unsettled until that is back, which may take longer; but it is one portal at a time.
        let may_pass = alone != Class::Partition
            || portals > 1 && !matches!(error, Error::OverlapsUnsettled { .. });
        may_pass
            .then(|| format!("only {alone} is wrong, and passes, but a request failed: {error}"))
    }

    /// Whether somebody has to know what lies unread.
    pub(crate) fn watches_unread(&self) -> bool {
        matches!(self.alone, Some(Class::BusyTarget | Class::SlowStore))
    }

    /// A target answers nothing for so long.
    pub(crate) fn silence(&mut self, target: usize, lasts: Duration) {
        self.silences.insert(target, Silence::of(lasts));
        self.trace.note("a target is busy", &[target as u64, lasts.as_secs()]);
    }

    /// Why the initiator may not lose this connection now, where nothing goes wrong but that targets are busy or its own
    /// process has stopped. A login has a short time limit, and so have an abort and a logout, which end all connections of
    /// their session.
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
        let may_not =
            self.watches_unread() && is_busy && is_quiet && acknowledges && lasts < MAX_SILENCE;
        may_not.then(|| {
            format!("a session is lost, though its target has been busy for only {lasts:?}")
        })
    }
}
