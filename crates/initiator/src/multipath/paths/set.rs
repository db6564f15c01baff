//! Holds the open paths of a disk, the lost paths, and the paths that cannot be used.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::paths::path::Path;
use crate::state::counters::{Counted, Snapshot};
use iscsi_multipath::{PathId, Unit};

/// The paths of one disk.
#[derive(Debug, Default)]
pub(crate) struct PathSet {
    open: SmallVec<[(PathId, Path); 1]>,
    /// Paths that were lost since the supervisor last took them, each with the reason.
    lost: Vec<(Path, Error)>,
    /// Paths that were lost or removed, and whose writes the target may still execute.
    unsettled: Vec<Path>,
    /// Paths that lead to the unit but whose port does not serve it, since the supervisor last took them,
    /// each with the reason.
    useless: Vec<(PathId, Error)>,
    /// Session that carries no requests, and stays logged in because it receives the reports of resets since
    /// the oldest unflushed write; `None` if no such session is needed.
    witness: Option<(PathId, Path)>,
    /// Whether a supervisor reconnects lost paths.
    is_supervised: bool,
    /// Whether a request has needed another port since the supervisor last checked.
    is_port_called_for: bool,
    /// Whether a port has refused a request since the supervisor last checked.
    is_access_called_for: bool,
    /// The counters of each open path, in the order of `open`.
    counted: SmallVec<[Counted; 1]>,
    gone: Gone,
    /// When the last open path was removed; `None` while a path is open.
    none_since: Option<Instant>,
}

/// Counters of the paths that are gone.
#[derive(Debug, Default)]
struct Gone {
    counted: Counted,
    /// Number of commands that were sent again.
    retries: u64,
    /// Number of sessions that were lost.
    losses: u64,
}

/// The remaining paths of a disk that has ended.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) open: Vec<Path>,
    /// Paths that were lost and have not reconnected, each with the reason.
    pub(crate) lost: Vec<(Path, Error)>,
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

    /// Marks the paths as supervised: lost paths will reconnect.
    pub(super) fn supervise(&mut self) {
        self.is_supervised = true;
        self.open.iter().for_each(|(_, carrier)| carrier.keep_unsettled());
    }

    pub(crate) const fn is_supervised(&self) -> bool {
        self.is_supervised
    }

    /// Asks the supervisor for another port.
    pub(crate) const fn call_for_port(&mut self) {
        self.is_port_called_for = true;
    }

    /// Asks the supervisor for the states of all ports.
    pub(crate) const fn call_for_access(&mut self) {
        self.is_access_called_for = true;
    }

    pub(crate) const fn take_call_for_access(&mut self) -> bool {
        std::mem::replace(&mut self.is_access_called_for, false)
    }

    pub(crate) const fn take_call_for_port(&mut self) -> bool {
        std::mem::replace(&mut self.is_port_called_for, false)
    }

    pub(crate) fn open(&self) -> &[(PathId, Path)] {
        &self.open
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.open.iter().find(|(path, _)| *path == id).map(|(_, carrier)| carrier)
    }

    /// Removes a path. Its counters are kept. Its unsettled writes are tracked until they are settled.
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

    /// Removes a path that was lost. Returns whether it was open.
    pub(super) fn remove_lost(&mut self, id: PathId, error: &Error, unit: &mut Unit) -> bool {
        let Some(carrier) = self.remove(id, unit) else { return false };
        self.gone.losses += 1;
        self.lost.push((carrier, error.clone()));
        true
    }

    /// Returns whether there has been no open path for `time`.
    pub(crate) fn are_gone_for(&self, time: Duration) -> bool {
        self.none_since.is_some_and(|since| since.elapsed() >= time)
    }

    /// Returns the counters of a path. If the path is gone, returns the counters that all gone paths share.
    pub(crate) fn counted(&mut self, id: PathId) -> &mut Counted {
        let at = self.position(id);
        at.and_then(|at| self.counted.get_mut(at)).unwrap_or(&mut self.gone.counted)
    }

    /// Returns the requests in flight on each open path, and their bytes, in the order of the paths.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counted.iter().map(Counted::in_flight)
    }

    /// Returns the counts of each open path, in the order of the paths, and those of the paths that are gone.
    pub(crate) fn snapshots(&mut self) -> (Vec<Snapshot>, Snapshot) {
        let open = self.counted.iter_mut().map(Counted::snapshot).collect();
        (open, self.gone.counted.snapshot())
    }

    fn position(&self, id: PathId) -> Option<usize> {
        self.open.iter().position(|(path, _)| *path == id)
    }

    /// Returns the number of sessions that were lost.
    pub(crate) const fn losses(&self) -> u64 {
        self.gone.losses
    }

    pub(crate) fn set_aside(&mut self, id: PathId, error: &Error) {
        self.useless.push((id, error.clone()));
    }

    /// Sets the witness: the session that stays logged in although it is not a path. Returns the previous
    /// witness, unless it is an open path.
    pub(crate) fn set_witness(&mut self, witness: Option<(PathId, Path)>) -> Option<Path> {
        let (id, before) = std::mem::replace(&mut self.witness, witness)?;
        self.get(id).is_none().then_some(before)
    }

    pub(crate) const fn witness(&self) -> Option<&(PathId, Path)> {
        self.witness.as_ref()
    }

    pub(super) fn take_lost(&mut self) -> Vec<(Path, Error)> {
        std::mem::take(&mut self.lost)
    }

    pub(super) fn take_useless(&mut self) -> Vec<(PathId, Error)> {
        std::mem::take(&mut self.useless)
    }

    /// Returns whether the unit has finished with every write that was sent over any path.
    pub(super) fn is_settled(&self) -> bool {
        let open = self.open.iter().chain(&self.witness).map(|(_, carrier)| carrier);
        open.chain(&self.unsettled).all(Path::is_settled)
    }

    /// Ends the supervision: lost paths will not reconnect to carry requests.
    pub(super) const fn end(&mut self) {
        self.is_supervised = false;
    }

    /// Takes the remaining paths, so that the caller can close them.
    pub(super) fn remains(&mut self) -> Remains {
        let witness = self.set_witness(None);
        let open = self.open.iter().map(|(_, carrier)| carrier.clone()).chain(witness).collect();
        Remains { open, lost: self.take_lost() }
    }

    /// Counts a command that is sent again. The path that did not take the command may be gone.
    pub(crate) fn count_retry(&mut self, id: PathId) {
        match self.get(id) {
            Some(carrier) => carrier.count_retry(),
            None => self.gone.retries += 1,
        }
    }

    /// Returns how many commands were sent again, over all paths that exist or are gone.
    pub(crate) fn retries(&self) -> u64 {
        let open = self.open.iter().map(|(_, carrier)| carrier.retries());
        self.gone.retries + open.sum::<u64>()
    }
}

/// Records that the unit may have reported something that no command receives, because a path is gone or
/// there was no path before.
fn may_have_missed(unit: &mut Unit) {
    unit.identity.add_attention();
}
