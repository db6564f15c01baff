//! Keeps witnesses: sessions that carry no requests and still receive reports of resets.
//!
//! A session that has just logged in to a port does not receive reports of earlier resets. If the port of all
//! other sessions has gone into standby, one of them stays logged in, because it also receives the report of
//! each reset (SAM-5 §5.14). It is needed until a flush has shown whether the earlier writes are on the medium.

use std::sync::Arc;

use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::multipath::supervisor::Supervisor;
use crate::multipath::supervisor::event::Event;
use crate::multipath::supervisor::leaving::closed;
use crate::multipath::supervisor::leaving::let_go;
use crate::unit::logical_unit::LogicalUnit;
use iscsi_multipath::PathId;

impl Supervisor {
    /// Logs out a session that was set aside, once nothing is in flight on it and it is not needed as a
    /// witness.
    pub(super) fn retire(&mut self, paths: &Paths, id: PathId) {
        let open = paths.open();
        let Some((_, path)) = open.iter().find(|(there, _)| *there == id) else { return };
        if let Some(before) = keep_witness(paths, id, path) {
            self.dismiss(before);
        }
        let (paths, retired) = (paths.clone(), path.clone());
        let report = Arc::clone(&self.opener.report);
        self.leave(path.clone(), async move {
            let Some(path) = paths.remove(id).await else { return Event::Stayed(retired) };
            report.publish(&closed(&path));
            if is_witness(&paths, id) { Event::Stayed(retired) } else { let_go(path).await }
        });
    }

    pub(super) fn let_go_of_witness(&mut self, paths: &Paths) {
        if let Some(path) = take_needless_witness(paths) {
            self.dismiss(path);
        }
    }
}

/// Returns the session, other than `flushing`, that has received reports of resets for the longest time.
/// Sessions that have missed no status since the oldest write of the flush in progress come first.
pub(crate) fn other_witness(paths: &Paths, flushing: PathId) -> Option<LogicalUnit> {
    let state = paths.lock();
    let all = state.paths.open().iter().chain(state.paths.witness());
    let others = all.filter(|(id, path)| *id != flushing && path.unit.session().is_open());
    let durability = &state.unit().durability;
    let witness = others.min_by_key(|(id, _)| durability.witness_rank(*id));
    witness.map(|(_, path)| path.unit.clone())
}

/// Keeps a path that is set aside as the witness, if a witness is needed and there is no other. Returns the
/// previous witness.
fn keep_witness(paths: &Paths, id: PathId, path: &Path) -> Option<Path> {
    let mut state = paths.lock();
    let open = state.paths.open().iter();
    let others =
        open.filter(|(other, _)| *other != id && !state.requests.paths().is_closing(*other));
    let others = others.chain(state.paths.witness());
    let others = others.filter(|(_, it)| it.unit.session().is_open()).map(|(id, _)| *id);
    let others: Vec<_> = others.collect();
    let is_needed = state.unit().durability.needs_beside(id, others.into_iter());
    if !is_needed || !path.unit.session().is_open() {
        return None;
    }
    state.paths.set_witness(Some((id, path.clone())))
}

/// Returns whether this path stays a witness when it is removed.
fn is_witness(paths: &Paths, id: PathId) -> bool {
    paths.lock().paths.witness().is_some_and(|(witness, _)| *witness == id)
}

/// Takes the witness, if it is not needed and is not a path.
fn take_needless_witness(paths: &Paths) -> Option<Path> {
    let mut state = paths.lock();
    let durability = &state.unit().durability;
    let is_needed =
        |(id, path): &(PathId, Path)| path.unit.session().is_open() && durability.needs(*id);
    let is_over = state.paths.witness().is_some_and(|witness| !is_needed(witness));
    if is_over { state.paths.set_witness(None) } else { None }
}

/// Notifies the supervisor that a flush has succeeded, because a witness may not be needed after it.
pub(crate) fn witness_has_spoken(paths: &Paths) {
    if paths.lock().paths.witness().is_some() {
        paths.attention().notify_one();
    }
}
