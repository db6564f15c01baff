//! The paths that there are, those that were lost, and those that are of no use.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::path::Path;
use crate::state::counters::{Counted, Snapshot};
use iscsi_multipath::{PathId, Unit};

/// The paths of one disk.
#[derive(Debug, Default)]
pub(super) struct PathSet {
    open: SmallVec<[(PathId, Path); 1]>,
    /// Lost since the supervisor last asked, each with the reason.
    lost: Vec<(Path, Error)>,
    /// Lost, or taken out, and what they left was not settled then.
    unsettled: Vec<Path>,
    /// Lead to the unit and are not served there: since the supervisor last asked, each with the
    /// reason.
    useless: Vec<(PathId, Error)>,
    /// Carries nothing any more, and vouches for what was not flushed.
    witness: Option<(PathId, Path)>,
    /// Somebody reopens lost paths.
    is_supervised: bool,
    /// A request needs another port.
    is_port_called_for: bool,
    /// A port has refused a request.
    is_access_called_for: bool,
    /// The counters of each open path, in the order of `open`.
    counted: SmallVec<[Counted; 1]>,
    gone: Gone,
    /// Since when there is none.
    none_since: Option<Instant>,
}

/// The counters of the paths that are gone.
#[derive(Debug, Default)]
struct Gone {
    counted: Counted,
    /// Commands that were sent again.
    retries: u64,
    /// How many were lost.
    losses: u64,
}

/// The paths of a disk that has ended.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) open: Vec<Path>,
    /// Lost, and not opened anew: each with the reason.
    pub(super) lost: Vec<(Path, Error)>,
}

impl PathSet {
    pub(super) fn add(&mut self, carrier: Path, unit: &mut Unit) -> PathId {
        let id = carrier.unit.state().path();
        if self.is_supervised {
            carrier.keep_unsettled();
        }
        if self.open.is_empty() {
            may_have_missed(unit);
        }
        self.open.push((id, carrier));
        self.counted.push(Counted::default());
        self.none_since = None;
        id
    }

    /// Somebody reopens lost paths from now on.
    pub(super) fn supervise(&mut self) {
        self.is_supervised = true;
        self.open.iter().for_each(|(_, carrier)| carrier.keep_unsettled());
    }

    pub(super) const fn is_supervised(&self) -> bool {
        self.is_supervised
    }

    /// Calls for another port.
    pub(super) const fn call_for_port(&mut self) {
        self.is_port_called_for = true;
    }

    /// Calls for the states of all ports.
    pub(super) const fn call_for_access(&mut self) {
        self.is_access_called_for = true;
    }

    pub(super) const fn take_call_for_access(&mut self) -> bool {
        std::mem::replace(&mut self.is_access_called_for, false)
    }

    pub(super) const fn take_call_for_port(&mut self) -> bool {
        std::mem::replace(&mut self.is_port_called_for, false)
    }

    pub(super) fn open(&self) -> &[(PathId, Path)] {
        &self.open
    }

    pub(super) fn get(&self, id: PathId) -> Option<&Path> {
        self.open.iter().find(|(path, _)| *path == id).map(|(_, carrier)| carrier)
    }

    /// Takes a path out; what it has counted stays counted, and what it has left counts until it is settled.
    pub(super) fn remove(&mut self, id: PathId, unit: &mut Unit) -> Option<Path> {
        let at = self.position(id)?;
        let (_, carrier) = self.open.remove(at);
        if self.open.is_empty() {
            self.none_since = Some(Instant::now());
        }
        may_have_missed(unit);
        self.gone.retries += carrier.retries();
        self.gone.counted.inherit(self.counted.remove(at));
        self.unsettled.retain(|carrier| !carrier.is_settled());
        if !carrier.is_settled() {
            self.unsettled.push(carrier.clone());
        }
        Some(carrier)
    }

    /// A path was lost. Says whether it was there.
    pub(super) fn lose(&mut self, id: PathId, error: &Error, unit: &mut Unit) -> bool {
        let Some(carrier) = self.remove(id, unit) else { return false };
        self.gone.losses += 1;
        self.lost.push((carrier, error.clone()));
        true
    }

    /// Whether there has been none for this time.
    pub(super) fn are_gone_for(&self, time: Duration) -> bool {
        self.none_since.is_some_and(|since| since.elapsed() >= time)
    }

    /// Where what is carried over a path is counted, also when it is gone.
    pub(super) fn counted(&mut self, id: PathId) -> &mut Counted {
        let at = self.position(id);
        at.and_then(|at| self.counted.get_mut(at)).unwrap_or(&mut self.gone.counted)
    }

    /// The requests in flight on each that is open, and their bytes, in their order.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counted.iter().map(Counted::in_flight)
    }

    /// What was counted of each that is open, in their order, and of all that are gone.
    pub(super) fn snapshots(&mut self) -> (Vec<Snapshot>, Snapshot) {
        let open = self.counted.iter_mut().map(Counted::snapshot).collect();
        (open, self.gone.counted.snapshot())
    }

    fn position(&self, id: PathId) -> Option<usize> {
        self.open.iter().position(|(path, _)| *path == id)
    }

    /// How many sessions were lost.
    pub(super) const fn losses(&self) -> u64 {
        self.gone.losses
    }

    pub(super) fn set_aside(&mut self, id: PathId, error: &Error) {
        self.useless.push((id, error.clone()));
    }

    /// A path that is set aside stays a witness when it is gone. Gives back the one before it, unless that
    /// is open.
    pub(super) fn set_witness(&mut self, witness: Option<(PathId, Path)>) -> Option<Path> {
        let (id, before) = std::mem::replace(&mut self.witness, witness)?;
        self.get(id).is_none().then_some(before)
    }

    pub(super) const fn witness(&self) -> Option<&(PathId, Path)> {
        self.witness.as_ref()
    }

    pub(super) fn take_lost(&mut self) -> Vec<(Path, Error)> {
        std::mem::take(&mut self.lost)
    }

    pub(super) fn take_useless(&mut self) -> Vec<(PathId, Error)> {
        std::mem::take(&mut self.useless)
    }

    /// Whether the unit has finished with every write that was sent over any path.
    pub(super) fn is_settled(&self) -> bool {
        let open = self.open.iter().chain(&self.witness).map(|(_, carrier)| carrier);
        open.chain(&self.unsettled).all(Path::is_settled)
    }

    /// No path that is lost is opened anew to carry anything.
    pub(super) const fn end(&mut self) {
        self.is_supervised = false;
    }

    /// What is left to be closed.
    pub(super) fn remains(&mut self) -> Remains {
        let witness = self.set_witness(None);
        let open = self.open.iter().map(|(_, carrier)| carrier.clone()).chain(witness).collect();
        Remains { open, lost: self.take_lost() }
    }

    /// One more command is sent again that a path has not taken, which may be gone by now.
    pub(super) fn count_retry(&mut self, id: PathId) {
        match self.get(id) {
            Some(carrier) => carrier.count_retry(),
            None => self.gone.retries += 1,
        }
    }

    /// How many commands were sent again, over all paths that there are and were.
    pub(super) fn retries(&self) -> u64 {
        let open = self.open.iter().map(|(_, carrier)| carrier.retries());
        self.gone.retries + open.sum::<u64>()
    }
}

/// The unit may have something to report that no command receives: a path is gone, or there was none before.
fn may_have_missed(unit: &mut Unit) {
    unit.identity.add_attention();
}
