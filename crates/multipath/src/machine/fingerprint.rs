//! A canonical form of a machine, for an exhaustive search over states.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::Instant;

use super::Machine;
use super::record::{Attempt, Place, Progress, What};
use crate::ids::PathId;
use crate::slab::Key;

/// Hashes all that decides about what follows: no statistics and no times, and names by age. Two states in which the same
/// follows have the same hash, whenever they came about.
pub(super) fn hash<E: Clone>(machine: &Machine<E>, now: Instant, state: &mut impl Hasher) {
    // In which order requests came decides nothing once they have their ranges, and neither does the order of attempts over
    // several paths.
    let requests = sorted(machine.requests.keys(), |key| {
        machine.requests.get(key).map(|record| {
            let range = record.range.map(|range| machine.writes.name(range));
            (record.disk, range, record.spec.writes, record.spec.len, record.order)
        })
    });
    let attempts = sorted(machine.attempts.keys(), |key| {
        machine.attempts.get(key).map(|attempt| (attempt.path, attempt.order))
    });
    let path = |id: PathId| machine.paths.keys().position(|other| *other == id);
    let records: Vec<_> = attempts.iter().filter_map(|key| machine.attempts.get(*key)).collect();
    let begun: Vec<_> = records.iter().filter_map(|it| Some((it.path, *it.begun()?))).collect();
    machine.unit.fingerprint(&begun, &machine.flushes.epochs(), state);
    machine.writes.fingerprint(state);
    for (lost, count) in machine.writes.in_doubt() {
        (lost.0, count).hash(state);
    }
    for (id, disk) in &machine.disks {
        let of_disk = |key: &&Key| machine.requests.get(**key).is_some_and(|it| it.disk == *id);
        let place = |key: &Key| match machine.requests.get(*key)?.place {
            Place::Engine(id) => Some(id),
            Place::InLine => None,
        };
        let engine_requests: Vec<_> = requests.iter().filter(of_disk).filter_map(place).collect();
        let engine_attempts: Vec<_> = records
            .iter()
            .filter(|it| it.disk == *id)
            .filter_map(|it| {
                if let What::Request { engine, .. } = it.what { Some(engine) } else { None }
            })
            .chain(machine.flushes.attempts().filter(|(of, _)| of == id).map(|(_, it)| it))
            .collect();
        disk.requests.fingerprint(&engine_requests, &engine_attempts, path, now, state);
        let losses = machine.unit.durability.losses().0;
        (losses - disk.seen.0, disk.refusal.is_some(), disk.is_leaving).hash(state);
        (losses - machine.unit.durability.reported_losses().0).hash(state);
    }
    for key in &requests {
        let Some(record) = machine.requests.get(*key) else { continue };
        (discriminant(&record.place), record.spec.len, record.spec.writes, record.disk).hash(state);
        (machine.unit.durability.losses().0 - record.seen.0).hash(state);
        record.range.map(|range| machine.writes.name(range)).hash(state);
    }
    for attempt in &records {
        attempt_state(machine, attempt, &requests, state);
    }
    for (id, record) in &machine.paths {
        let place = |key: &Key| attempts.iter().position(|other| other == key);
        record.held.iter().for_each(|key| place(key).hash(state));
        u8::MAX.hash(state);
        record.unproven.iter().for_each(|key| place(key).hash(state));
        (record.question.is_some(), record.ask_at.is_some(), record.unanswered).hash(state);
        (record.verdict.is_some(), record.disk).hash(state);
        machine.unit.identity.fingerprint(*id, None, None, state);
    }
    machine.flushes.fingerprint(path, &machine.unit, state);
    machine.leaving.iter().for_each(|lost| lost.0.hash(state));
}

fn attempt_state<E: Clone>(
    machine: &Machine<E>,
    attempt: &Attempt,
    requests: &[Key],
    state: &mut impl Hasher,
) {
    (machine.paths.keys().position(|id| *id == attempt.path), attempt.disk).hash(state);
    (discriminant(&attempt.what), discriminant(&attempt.progress)).hash(state);
    attempt.range.map(|range| machine.writes.name(range)).hash(state);
    if let super::Command::Request { request, is_short, is_hedge } = attempt.command {
        let place = requests.iter().position(|key| *key == request.0);
        (place, is_short, is_hedge).hash(state);
    }
    if let What::Flush(flush, question) = attempt.what {
        (machine.flushes.place(flush), question.number).hash(state);
    }
    if let (What::Identify(asked_at), Progress::Sent(_)) = (attempt.what, attempt.progress) {
        machine.unit.identity.fingerprint(attempt.path, None, Some(asked_at), state);
    }
}

fn sorted<T: Ord>(keys: impl Iterator<Item = Key>, order: impl Fn(Key) -> T) -> Vec<Key> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_cached_key(|key| order(*key));
    keys
}
