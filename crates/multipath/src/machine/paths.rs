//! Opens, identifies and closes the paths of the disks, and handles lost paths.

use std::time::Instant;

use super::Machine;
use super::output::{AttemptId, Command, DiskId, Output};
use super::record::{Path, Progress, What};
use crate::access::Access;
use crate::flushing;
use crate::identity::SharedReasons;
use crate::ids::PathId;
use crate::paths::Credit;
use crate::requests::{self, AttemptEnd, end::End};
use crate::unit::{Reported, Unit};

/// Facts about a session that has logged in and leads to the unit.
#[derive(Clone, Copy, Debug)]
pub struct PathFacts {
    /// Limits of what may be in flight on the path.
    pub credit: Credit,
    /// The result of `Identity::shared_reasons` when the unit was identified over the session.
    pub asked_at: SharedReasons,
    /// Reports of the unit to the session since that identification.
    pub reported: Option<Reported>,
}

impl<E: Clone> Machine<E> {
    /// Adds a path of this disk: a session that has logged in and leads to the unit. Returns `None` if the
    /// disk does not exist.
    pub fn path_opened(&mut self, disk: DiskId, facts: PathFacts, now: Instant) -> Option<PathId> {
        let state = self.disks.get_mut(&disk).filter(|disk| !disk.is_leaving)?;
        let path =
            if self.has_had_path { self.unit.add_path(facts.asked_at) } else { Unit::FIRST_PATH };
        self.has_had_path = true;
        self.paths.insert(path, Path::new(disk));
        if let Some(reported) = facts.reported {
            self.unit.merge(path, reported);
        }
        state.requests.add_path(path, facts.credit, now);
        self.run(now);
        Some(path)
    }

    /// Refuses the requests of a disk with `why`, because no path could be opened and none will be. Changes
    /// nothing if the disk has a path.
    pub fn open_failed(&mut self, disk: DiskId, why: &E, now: Instant) {
        let has_path = self.paths.values().any(|path| path.disk == disk);
        if !has_path {
            self.refuse(disk, why, now);
        }
    }

    /// Removes a lost path with all attempts in flight there. `unsent` are the attempts whose commands were not
    /// sent. The others may still be executed, and their ranges are in doubt until [`settled`](Self::settled).
    ///
    /// If the path was removed before, nothing changes.
    pub fn path_lost(&mut self, path: PathId, error: &E, unsent: &[AttemptId], now: Instant) {
        let Some(state) = self.paths.remove(&path) else { return };
        let end = |may_have_executed| AttemptEnd {
            end: End::SessionLost,
            access: None,
            error: Some(error.clone()),
            may_have_executed,
        };
        if let Some(disk) = self.disks.get_mut(&state.disk) {
            disk.requests.remove_lost_path(path, now);
        }
        let on_path = self.attempts.iter().filter(|(_, attempt)| attempt.path == path);
        let mut lost: Vec<_> = on_path.map(|(id, attempt)| (attempt.order, id)).collect();
        lost.sort_unstable();
        for (_, id) in lost {
            let Some(attempt) = self.attempts.remove(id) else { continue };
            let may_land = match attempt.progress {
                Progress::Held => false,
                Progress::Sent(begun) if unsent.contains(&id) => {
                    self.unit.forget(path, begun.number);
                    false
                }
                Progress::Sent(begun) => {
                    self.unit.end_with_session(path, begun.number);
                    true
                }
                // The unit has ended this attempt with GOOD, so it will not execute it later.
                Progress::Unproven(_) => false,
            };
            let was_sent = may_land || matches!(attempt.progress, Progress::Unproven(_));
            match attempt.range {
                Some(range) if may_land => self.writes.mark_in_doubt(path, range),
                Some(range) => self.writes.release(range),
                None => {}
            }
            match attempt.what {
                What::Request { engine, .. } => {
                    self.end_of_engine(attempt.disk, engine, end(was_sent), now)
                }
                What::Flush(flush, question) => {
                    let (no_answer, failure) = (flushing::End::NoAnswer, Some(end(was_sent)));
                    self.flushes.on_end((flush, question), no_answer, failure, &mut self.unit);
                }
                What::Identify(_) => {}
            }
        }
        for (disk, attempt) in self.flushes.path_lost(path) {
            self.end_of_engine(disk, attempt, end(false), now);
        }
        self.leaving.push(path);
        self.run(now);
    }

    /// Records that the target will not execute any more commands that were sent over a lost path.
    pub fn settled(&mut self, path: PathId, now: Instant) {
        self.writes.settle(path);
        self.run(now);
    }

    /// Closes a path: it takes no more requests. [`Output::LogOut`] follows when nothing is in flight there,
    /// and no flush needs its reports of resets.
    pub fn close_path(&mut self, path: PathId, now: Instant) {
        self.with_engine_of(path, |engine| engine.close_path(path));
        self.run(now);
    }

    /// Sets the access states of the ports of paths.
    pub fn set_access(&mut self, all: &[(PathId, Access)], now: Instant) {
        for (path, access) in all {
            self.with_engine_of(*path, |engine| engine.set_access([(*path, *access)], now));
        }
        self.run(now);
    }

    /// Sets the limits of what may be in flight on a path.
    pub fn set_credit(&mut self, path: PathId, credit: Credit, now: Instant) {
        self.with_engine_of(path, |engine| engine.set_credit(path, credit, now));
        self.run(now);
    }

    /// Sets whether the unit reports the states of its port groups.
    pub fn set_follows_access(&mut self, disk: DiskId, follows: bool) {
        if let Some(disk) = self.disks.get_mut(&disk) {
            disk.requests.set_follows_access(follows);
        }
    }

    /// Passes the end of an attempt to the `Requests` of its disk.
    pub(super) fn end_of_engine(
        &mut self,
        disk: DiskId,
        attempt: requests::AttemptId,
        end: AttemptEnd<E>,
        now: Instant,
    ) {
        if let Some(disk) = self.disks.get_mut(&disk) {
            disk.requests.ended(attempt, end, now);
        }
    }

    fn with_engine_of(&mut self, path: PathId, change: impl FnOnce(&mut requests::Requests<E>)) {
        let disk = self.paths.get(&path).map(|path| path.disk);
        if let Some(disk) = disk.and_then(|disk| self.disks.get_mut(&disk)) {
            change(&mut disk.requests);
        }
    }

    /// Sends the identification over the first path where it is due. Returns whether it was sent.
    pub(super) fn ask_which_unit(&mut self) -> bool {
        if !self.unit.identity.any_needs_revalidation() {
            return false;
        }
        let unit = &self.unit;
        let is_due = |(id, path): &(&PathId, &Path<E>)| {
            let is_free = path.question.is_none() && path.ask_at.is_none();
            is_free && path.verdict.is_none() && unit.identity.needs_revalidation(**id)
        };
        let Some((id, path)) = self.paths.iter().find(is_due) else { return false };
        let (id, disk) = (*id, path.disk);
        let what = What::Identify(self.unit.identity.reasons(id));
        let key = self.send(disk, id, what, Command::Identify, None);
        if let Some(path) = self.paths.get_mut(&id) {
            path.question = Some(key);
        }
        true
    }

    /// Logs out of closed paths that are not needed any more. Removes lost paths that no flush needs, and
    /// disks that were detached.
    pub(super) fn log_out(&mut self) {
        let flushes = &self.flushes;
        for path in self.leaving.extract_if(.., |path| !flushes.uses(*path)) {
            self.unit.remove_path(path);
        }
        // Log out of one path at a time: if two closed paths have the same reports of resets, one of them must
        // stay for the next flush.
        while let Some(path) = self.path_that_is_over() {
            self.with_engine_of(path, |engine| engine.remove_path(path));
            self.paths.remove(&path);
            self.unit.remove_path(path);
            self.outputs.push_back(Output::LogOut(path));
        }
        if !self.disks.values().any(|disk| disk.is_leaving) {
            return;
        }
        let (paths, attempts) = (&self.paths, &mut self.attempts);
        self.disks.retain(|id, disk| {
            let has_path = || paths.values().any(|path| path.disk == *id);
            let stays = !disk.is_leaving || has_path() || attempts.are_of(*id);
            if !stays {
                attempts.remove_disk(*id);
            }
            stays
        });
    }

    fn path_that_is_over(&self) -> Option<PathId> {
        if !self.disks.values().any(|disk| disk.requests.paths().has_closing()) {
            return None;
        }
        self.paths.keys().copied().find(|path| self.is_over(*path))
    }

    /// Returns whether a path is closed, has nothing in flight, and no flush needs its reports of resets.
    fn is_over(&self, path: PathId) -> bool {
        let engine = self.paths.get(&path).and_then(|state| self.disks.get(&state.disk));
        let selector = engine.map(|disk| disk.requests.paths());
        let is_drained = selector.is_some_and(|it| it.is_closing(path) && it.in_flight(path) == 0);
        let leads_elsewhere = self.paths.get(&path).is_some_and(|it| it.verdict.is_some());
        let others = self.paths.keys().copied().filter(|other| *other != path);
        let is_needed = || self.unit.durability.needs_beside(path, others.clone());
        is_drained
            && !self.attempts.are_on(path)
            && !self.flushes.uses(path)
            && !self.flushes.takes(path)
            && (leads_elsewhere || !is_needed())
    }
}
