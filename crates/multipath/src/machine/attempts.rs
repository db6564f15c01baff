//! Keeps the attempts of requests, and other commands of the machine, that have not ended.

use std::collections::BTreeMap;

use super::output::{AttemptId, AttemptKey, DiskId};
use super::record::{Attempt, What};
use crate::by_path::ByPath;
use crate::ids::PathId;
use crate::requests;
use crate::slab::{Secondary, Slab};

/// The attempts that have not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    /// Attempts of the requests of each disk, by the keys of its `Requests`.
    of_requests: BTreeMap<DiskId, Secondary<Attempt>>,
    /// Commands that belong to no request: commands of flushes and identifications.
    questions: Slab<Attempt>,
    /// Number of attempts over each path that has any.
    counts: ByPath<usize>,
}

impl Attempts {
    pub(super) fn insert(&mut self, attempt: Attempt) -> AttemptId {
        if let Some(count) = self.counts.get_mut(attempt.path) {
            *count += 1;
        } else {
            self.counts.insert(attempt.path, 1);
        }
        let disk = attempt.disk;
        if let What::Request { engine, .. } = attempt.what {
            self.of_requests.entry(disk).or_default().insert(engine.0, attempt);
            AttemptId(AttemptKey::OfRequest(disk, engine))
        } else {
            AttemptId(AttemptKey::Question(self.questions.insert(attempt)))
        }
    }

    pub(super) fn remove(&mut self, id: AttemptId) -> Option<Attempt> {
        let attempt = match id.0 {
            AttemptKey::OfRequest(disk, id) => self.of_requests.get_mut(&disk)?.remove(id.0),
            AttemptKey::Question(key) => self.questions.remove(key),
        }?;
        if let Some(count) = self.counts.get_mut(attempt.path) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(attempt.path);
            }
        }
        Some(attempt)
    }

    pub(super) fn get(&self, id: AttemptId) -> Option<&Attempt> {
        match id.0 {
            AttemptKey::OfRequest(disk, id) => self.of_requests.get(&disk)?.get(id.0),
            AttemptKey::Question(key) => self.questions.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, id: AttemptId) -> Option<&mut Attempt> {
        match id.0 {
            AttemptKey::OfRequest(disk, id) => self.of_requests.get_mut(&disk)?.get_mut(id.0),
            AttemptKey::Question(key) => self.questions.get_mut(key),
        }
    }

    /// Returns all attempts. It visits each slot, so call it only in rare cases.
    pub(super) fn iter(&self) -> impl Iterator<Item = (AttemptId, &Attempt)> {
        let of_requests = self.of_requests.iter().flat_map(|(disk, all)| {
            let key =
                |(key, attempt)| (AttemptKey::OfRequest(*disk, requests::AttemptId(key)), attempt);
            all.iter().map(key)
        });
        let questions =
            self.questions.iter().map(|(key, attempt)| (AttemptKey::Question(key), attempt));
        of_requests.chain(questions).map(|(key, attempt)| (AttemptId(key), attempt))
    }

    /// Returns whether there are attempts over a path.
    pub(super) fn are_on(&self, path: PathId) -> bool {
        self.counts.get(path).is_some()
    }

    /// Returns whether there are attempts of a disk.
    pub(super) fn are_of(&self, disk: DiskId) -> bool {
        let has_requests = self.of_requests.get(&disk).is_some_and(|all| all.len() > 0);
        has_requests || self.questions.iter().any(|(_, attempt)| attempt.disk == disk)
    }

    /// Removes a disk after all of its attempts have ended.
    pub(super) fn remove_disk(&mut self, disk: DiskId) {
        self.of_requests.remove(&disk);
    }
}
