//! Computes a canonical hash of a machine, for an exhaustive search over states.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::Instant;

use super::Machine;
use super::output::{AttemptId, DiskId, RequestId};
use super::record::{Attempt, Disk, Progress, What};
use crate::ids::PathId;
use crate::requests;

impl<E: Clone> Machine<E> {
    /// Hashes all state that affects later behavior, without statistics and times, and with identifiers
    /// replaced by age. Two states with the same future have the same hash, so a search over states can
    /// recognize a state that it has visited.
    pub fn fingerprint(&self, now: Instant, state: &mut impl Hasher) {
        // After the requests have taken their ranges, the order of the requests has no effect. The order
        // of attempts over different paths has no effect either.
        let of_disk = |(disk, it): (&DiskId, &Disk<E>)| {
            let name = |key| RequestId { disk: *disk, id: requests::RequestId(key) };
            it.records.iter().map(|(key, _)| name(key)).collect::<Vec<_>>()
        };
        let requests = sorted(self.disks.iter().flat_map(of_disk), |id| {
            self.record(id).map(|record| {
                let range = record.range.map(|range| self.writes.name(range));
                (id.disk, range, record.spec.writes, record.spec.len, record.order)
            })
        });
        let attempts = sorted(self.attempts.iter().map(|(id, _)| id), |id| {
            self.attempts.get(id).map(|attempt| (attempt.path, attempt.order))
        });
        let path = |id: PathId| self.paths.keys().position(|other| *other == id);
        let records: Vec<_> = attempts.iter().filter_map(|id| self.attempts.get(*id)).collect();
        let begun: Vec<_> = records.iter().filter_map(|it| Some((it.path, *it.begun()?))).collect();
        self.unit.fingerprint(&begun, &self.flushes.epochs(), state);
        self.writes.fingerprint(state);
        for (lost, count) in self.writes.in_doubt() {
            (lost.0, count).hash(state);
        }
        for (id, disk) in &self.disks {
            let own = requests.iter().filter(|it| it.disk == *id);
            let engine_requests: Vec<_> = own.map(|it| it.id).collect();
            let engine_attempts: Vec<_> = records
                .iter()
                .filter(|it| it.disk == *id)
                .filter_map(|it| {
                    if let What::Request { engine, .. } = it.what { Some(engine) } else { None }
                })
                .chain(self.flushes.attempts().filter(|(of, _)| of == id).map(|(_, it)| it))
                .collect();
            disk.requests.fingerprint(&engine_requests, &engine_attempts, path, now, state);
            let losses = self.unit.durability.losses().0;
            (losses - disk.seen.0, disk.is_leaving).hash(state);
            (losses - self.unit.durability.reported_losses().0).hash(state);
        }
        for id in &requests {
            let Some(record) = self.record(*id) else { continue };
            (record.spec.len, record.spec.writes, id.disk).hash(state);
            (self.unit.durability.losses().0 - record.seen.0).hash(state);
            record.range.map(|range| self.writes.name(range)).hash(state);
        }
        for attempt in &records {
            attempt_state(self, attempt, &requests, state);
        }
        for (id, record) in &self.paths {
            let place = |id: &AttemptId| attempts.iter().position(|other| other == id);
            record.held.iter().for_each(|id| place(id).hash(state));
            u8::MAX.hash(state);
            record.unproven.iter().for_each(|id| place(id).hash(state));
            (record.question.is_some(), record.ask_at.is_some(), record.unanswered).hash(state);
            (record.verdict.is_some(), record.disk).hash(state);
            self.unit.identity.fingerprint(*id, None, None, state);
        }
        self.flushes.fingerprint(path, &self.unit, state);
        self.leaving.iter().for_each(|lost| lost.0.hash(state));
    }
}

fn attempt_state<E: Clone>(
    machine: &Machine<E>,
    attempt: &Attempt,
    requests: &[RequestId],
    state: &mut impl Hasher,
) {
    (machine.paths.keys().position(|id| *id == attempt.path), attempt.disk).hash(state);
    (discriminant(&attempt.what), discriminant(&attempt.progress)).hash(state);
    attempt.range.map(|range| machine.writes.name(range)).hash(state);
    if let super::Command::Request { request, is_short, is_hedge } = attempt.command {
        let place = requests.iter().position(|id| *id == request);
        (place, is_short, is_hedge).hash(state);
    }
    if let What::Flush(flush, question) = attempt.what {
        (machine.flushes.place(flush), question.number).hash(state);
    }
    if let (What::Identify(asked_at), Progress::Sent(_)) = (attempt.what, attempt.progress) {
        machine.unit.identity.fingerprint(attempt.path, None, Some(asked_at), state);
    }
}

fn sorted<I: Copy, T: Ord>(ids: impl Iterator<Item = I>, order: impl Fn(I) -> T) -> Vec<I> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_by_cached_key(|id| order(*id));
    ids
}
