//! Runs one logical unit as a whole: combines the parts of its state, the requests of its disks, and their
//! attempts.
//!
//! The machine adds one thing to these parts: the order in which a call passes through them.
//!
//! - A write takes its range before anything else. The request holds the range until it has ended, and each
//!   of its attempts until the unit has ended the attempt. The writes of a lost session are in doubt until
//!   [`settled`](Machine::settled) reports that they cannot be executed any more.
//! - The end of an attempt is evaluated once: first what it reports about the unit, then whether the known
//!   unit has executed it, then what it means for durability, and last what follows for the request. So a
//!   write counts as unflushed before its caller receives the result.
//! - An input about an attempt that is unknown, has ended before, or was lost with its path is ignored by the
//!   first lines of [`completed`](Machine::completed) and [`identified`](Machine::identified). Only
//!   [`path_lost`](Machine::path_lost) handles the loss of a path.
//! - While the unit may be another one, only the commands that identify it are sent over a path, and GOOD is
//!   not trusted.
//! - One flush is in progress at a time, over all disks.
//!
//! After any call that takes `&mut self`, drain [`poll_output`](Machine::poll_output), execute the outputs in
//! their order, and call [`handle_timeout`](Machine::handle_timeout) at
//! [`poll_timeout`](Machine::poll_timeout). The number of outputs of one call is bounded by the number of
//! requests and attempts, plus a few for each path.

mod attempts;
mod fingerprint;
mod flush;
mod output;
mod paths;
mod record;
mod results;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

pub use paths::PathFacts;

pub use output::{AttemptId, Command, DiskId, Done, Event, Failure, Output, RequestId};

use crate::flushing::Terms;
use crate::ids::PathId;
use crate::ranges::RangeId;
use crate::requests::{self, AttemptEnd, RequestLimits, RequestSpec, Requests, Route};
use crate::slab::Secondary;
use crate::unit::Unit;
use attempts::Attempts;
use flush::Flushes;
use output::AttemptKey;
use record::{Attempt, Disk, Path, Progress, Record, What};
use writes::Writes;

/// A request of a caller to a disk.
#[derive(Clone, Debug)]
pub enum Request {
    /// Reads blocks.
    Read(RequestSpec),
    /// Changes the bytes of a range, which must not be empty.
    Write(Range<u64>, RequestSpec),
    /// Brings all completed writes onto the medium.
    Flush,
    /// Sends any other command that may be repeated. It must touch no blocks.
    Other(RequestSpec),
}

/// State of one logical unit, of the paths to it, and of the requests to it. `E` is the error of a command.
#[derive(Clone, Debug)]
pub struct Machine<E> {
    unit: Unit,
    writes: Writes,
    disks: BTreeMap<DiskId, Disk<E>>,
    paths: BTreeMap<PathId, Path<E>>,
    attempts: Attempts,
    flushes: Flushes<E>,
    /// Lost paths whose reports the flush in progress still needs.
    leaving: Vec<PathId>,
    outputs: VecDeque<Output<E>>,
    next_disk: u32,
    next_order: u64,
    has_had_path: bool,
}

impl<E: Clone> Machine<E> {
    /// Creates a unit without paths. Nothing is known about the unit.
    pub fn new() -> Self {
        Self {
            unit: Unit::new(),
            writes: Writes::default(),
            disks: BTreeMap::new(),
            paths: BTreeMap::new(),
            attempts: Attempts::default(),
            flushes: Flushes::default(),
            leaving: Vec::new(),
            outputs: VecDeque::new(),
            next_disk: 0,
            next_order: 0,
            has_had_path: false,
        }
    }

    /// Returns the next action.
    pub fn poll_output(&mut self) -> Option<Output<E>> {
        self.outputs.pop_front()
    }

    /// Returns the state of the unit: unflushed writes, and its identity.
    pub const fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Returns the state of the unit for changes, for example to record its cache or its identity.
    pub const fn unit_mut(&mut self) -> &mut Unit {
        &mut self.unit
    }

    /// Returns whether every request and attempt has ended, and no write of a lost session may still be
    /// executed.
    pub fn is_idle(&self) -> bool {
        let is_empty = self.sizes() == (0, 0) && self.outputs.is_empty();
        is_empty && self.writes.are_none() && self.are_settled()
    }

    /// Returns whether no write of a lost session may still be executed.
    pub fn are_settled(&self) -> bool {
        self.writes.are_settled()
    }

    /// Returns the numbers of requests and of attempts that have not ended.
    pub fn sizes(&self) -> (usize, usize) {
        let requests = self.disks.values().map(|disk| disk.records.len());
        (requests.sum(), self.attempts.iter().count())
    }

    /// Returns how many of the attempts over the same path are older than `attempt`; `None` if it has ended.
    pub fn age(&self, attempt: AttemptId) -> Option<usize> {
        let Attempt { order, path, .. } = *self.attempts.get(attempt)?;
        let is_older = |other: &Attempt| other.path == path && other.order < order;
        Some(self.attempts.iter().filter(|(_, other)| is_older(other)).count())
    }

    /// Adds a disk. The new disk reports the losses that no disk has reported yet.
    pub fn attach(&mut self, limits: RequestLimits) -> DiskId {
        let id = DiskId(self.next_disk);
        self.next_disk += 1;
        let disk = Disk {
            seen: self.unit.durability.reported_losses(),
            retry_timeout: limits.retry_timeout,
            pauses: limits.pauses,
            requests: Requests::new(limits),
            records: Secondary::default(),
            is_leaving: false,
        };
        self.disks.insert(id, disk);
        id
    }

    /// Removes a disk: its requests fail with `why`, and its paths are closed. The disk is removed together
    /// with the last of its paths.
    pub fn detach(&mut self, disk: DiskId, why: &E, now: Instant) {
        self.refuse(disk, why, now);
        if let Some(disk) = self.disks.get_mut(&disk) {
            disk.is_leaving = true;
        }
        let paths = self.paths.iter().filter(|(_, path)| path.disk == disk);
        let paths: Vec<_> = paths.map(|(id, _)| *id).collect();
        for path in paths {
            if let Some(disk) = self.disks.get_mut(&disk) {
                disk.requests.close_path(path);
            }
        }
        self.run(now);
    }

    /// Refuses requests of a disk with `why`: waiting requests, and new requests until a path is opened.
    /// Attempts in flight continue.
    pub fn refuse(&mut self, disk: DiskId, why: &E, now: Instant) {
        self.with_engine(disk, |engine| engine.refuse(why));
        self.run(now);
    }

    /// Submits a request. Returns `None` if there is no such disk.
    pub fn submit(&mut self, disk: DiskId, request: Request, now: Instant) -> Option<RequestId> {
        let order = self.next_order();
        let Disk { requests, records, seen, retry_timeout, .. } = self.disks.get_mut(&disk)?;
        let (range, spec) = match request {
            Request::Read(spec) | Request::Other(spec) => (None, spec),
            Request::Flush => (None, RequestSpec::FLUSH),
            Request::Write(range, spec) => (Some(range), spec),
        };
        // A request that is refused needs no range.
        let range = range.filter(|_| !requests.is_refusing());
        let taken = range.clone().map(|range| self.writes.take(range));
        let id = match (taken, range) {
            (Some((waiting, false)), Some(range)) => {
                let id = requests.submit_held(spec, now);
                let deadline = now.checked_add(*retry_timeout);
                self.writes.wait(waiting, range, RequestId { disk, id }, deadline);
                id
            }
            _ => requests.submit(spec, now),
        };
        let range = taken.map(|(range, _)| range);
        records.insert(id.0, Record { order, spec, range, seen: *seen });
        self.run(now);
        Some(RequestId { disk, id })
    }

    /// Cancels a request, because its caller does not wait any more. Attempts that were not sent are dropped,
    /// and the others are aborted. A range stays taken until the attempts that hold it have ended.
    pub fn cancel(&mut self, request: RequestId, now: Instant) {
        let Some(record) = self.remove_record(request) else { return };
        self.with_engine(request.disk, |engine| engine.cancel(request.id, now));
        if let Some(range) = record.range {
            self.writes.release(range);
        }
        self.run(now);
    }

    /// Notes that the traffic class of the request has admitted its bytes, so that it may take a path.
    pub fn charged(&mut self, request: RequestId, now: Instant) {
        self.with_engine(request.disk, |engine| engine.charged(request.id, now));
        self.run(now);
    }

    /// Notes whether the memory for a second copy of a read is reserved.
    pub fn reserved(&mut self, request: RequestId, is_reserved: bool, now: Instant) {
        self.with_engine(request.disk, |engine| engine.reserved(request.id, is_reserved, now));
        self.run(now);
    }

    fn with_engine(&mut self, disk: DiskId, change: impl FnOnce(&mut Requests<E>)) {
        if let Some(disk) = self.disks.get_mut(&disk) {
            change(&mut disk.requests);
        }
    }

    /// Returns the record of a request that has not ended.
    fn record(&self, request: RequestId) -> Option<&Record> {
        self.disks.get(&request.disk)?.records.get(request.id.0)
    }

    fn remove_record(&mut self, request: RequestId) -> Option<Record> {
        self.disks.get_mut(&request.disk)?.records.remove(request.id.0)
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let engines = self.disks.values().filter_map(|disk| disk.requests.poll_timeout());
        let questions = self.paths.values().filter_map(|path| path.ask_at);
        let lines = self.writes.poll_timeout();
        engines.chain(lines).chain(questions).chain(self.flushes.poll_timeout()).min()
    }

    /// Handles all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for disk in self.disks.values_mut() {
            if disk.requests.poll_timeout().is_some_and(|at| at <= now) {
                disk.requests.handle_timeout(now);
            }
        }
        for path in self.paths.values_mut() {
            path.ask_at = path.ask_at.filter(|at| *at > now);
        }
        for (range, request) in self.writes.late(now) {
            self.range_is_late(range, request, now);
        }
        self.run(now);
    }

    /// Ends the wait of a request for its range, after the time limit.
    fn range_is_late(&mut self, range: RangeId, request: RequestId, now: Instant) {
        if self.writes.is_in_doubt(range) {
            self.with_engine(request.disk, |engine| engine.cancel(request.id, now));
            return self.complete(request, Err(Failure::InDoubt));
        }
        // A range that is not in doubt becomes free when its holder ends, so the request continues to wait.
        let patience = self.disks.get(&request.disk).map(|disk| disk.retry_timeout);
        self.writes.set_deadline(range, patience.and_then(|patience| now.checked_add(patience)));
    }

    /// Completes a request.
    fn complete(&mut self, request: RequestId, result: Result<Done, Failure<E>>) {
        let Some(record) = self.remove_record(request) else { return };
        self.outputs.push_back(Output::Completed { request, result });
        if let Some(range) = record.range {
            self.writes.release(range);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// Handles all consequences of an input.
    fn run(&mut self, now: Instant) {
        loop {
            if let Some(request) = self.writes.pop_admitted() {
                self.with_engine(request.disk, |engine| engine.admitted(request.id, now));
            } else if let Some((disk, output)) = self.next_engine_output() {
                self.apply(disk, output, now);
            } else if !self.ask_which_unit() && !self.advance_flush(now) {
                break;
            }
        }
        self.log_out();
    }

    fn next_engine_output(&mut self) -> Option<(DiskId, requests::Output<E>)> {
        self.disks.iter_mut().find_map(|(id, disk)| Some((*id, disk.requests.poll_output()?)))
    }

    /// Handles an output of a disk's requests.
    fn apply(&mut self, disk: DiskId, output: requests::Output<E>, now: Instant) {
        let named = |id| RequestId { disk, id };
        let output = match output {
            requests::Output::Send { request, attempt, path, is_short, is_hedge } => {
                let command = Command::Request { request: named(request), is_short, is_hedge };
                return self.send_request(disk, path, attempt, command, now);
            }
            requests::Output::Abort { attempt, .. } => return self.abort(disk, attempt, now),
            requests::Output::Prepare(request) => {
                return self.with_engine(disk, |it| it.prepared(request, false, now));
            }
            requests::Output::Choose(request) => {
                let path = self.flush_path(disk, now);
                return self.with_engine(disk, |it| {
                    path.into_iter().for_each(|path| it.choose(request, path, now));
                });
            }
            requests::Output::Completed { request, result, .. } => {
                let request = named(request);
                let route = self.record(request).map(|record| record.spec.route);
                if result.is_ok() && route == Some(Route::Vouching) {
                    return self.flushed(request);
                }
                let by = |id| Done::By(AttemptId(AttemptKey::OfRequest(disk, id)));
                return self.complete(request, result.map(by).map_err(Failure::Request));
            }
            requests::Output::Charge { request, len, .. } => {
                Output::Charge { request: named(request), len }
            }
            requests::Output::Reserve { request, len, waits } => {
                Output::Reserve { request: named(request), len, waits }
            }
            requests::Output::Unreserve(request) => Output::Unreserve(named(request)),
            requests::Output::Report(request, report) => {
                Output::Event(Event::Report(named(request), report))
            }
            requests::Output::Retried(path) => Output::Event(Event::Retried(path)),
            requests::Output::PortRefused(path, access) => {
                Output::Event(Event::PortRefused(path, access))
            }
            requests::Output::PortNeeded => Output::Event(Event::PortNeeded(disk)),
            requests::Output::PathSetAside(path, why) => {
                Output::Event(Event::PathSetAside(path, why))
            }
            // Neither needs an action here: `run` checks closed paths at its end, and `poll_timeout` covers
            // all timers.
            requests::Output::PathDrained(_) | requests::Output::TimerSet(_) => return,
        };
        self.outputs.push_back(output);
    }

    /// Creates an attempt of a request.
    fn send_request(
        &mut self,
        disk: DiskId,
        path: PathId,
        engine: requests::AttemptId,
        command: Command,
        now: Instant,
    ) {
        let Command::Request { request, .. } = command else { return };
        let Some(record) = self.record(request).copied() else { return };
        if record.spec.route == Route::Vouching {
            let retry_timeout = self.disks.get(&disk).map(|disk| disk.retry_timeout);
            let retry_timeout = retry_timeout.unwrap_or_default();
            let write_cache = Some(self.unit.durability.has_cache());
            let terms = Terms { write_cache, retry_timeout };
            return self.flushes.start((disk, engine), path, terms, &mut self.unit);
        }
        if let Some(range) = record.range {
            self.writes.hold(range);
        }
        let what = What::Request { engine, writes: record.spec.writes };
        self.send(disk, path, what, command, record.range);
        self.end_if_elsewhere(path, now);
    }

    /// Creates an attempt, and sends it unless the unit must be identified first.
    fn send(
        &mut self,
        disk: DiskId,
        path: PathId,
        what: What,
        command: Command,
        range: Option<RangeId>,
    ) -> AttemptId {
        let order = self.next_order();
        let progress = Progress::Held;
        let id =
            self.attempts.insert(Attempt { order, disk, path, what, command, progress, range });
        let is_question = matches!(what, What::Identify(_));
        if !is_question && self.unit.identity.needs_revalidation(path) {
            if let Some(path) = self.paths.get_mut(&path) {
                path.held.push_back(id);
            }
        } else {
            self.begin(id);
        }
        id
    }

    /// Begins a command and sends it.
    fn begin(&mut self, id: AttemptId) {
        let Some(attempt) = self.attempts.get_mut(id) else { return };
        attempt.progress = Progress::Sent(self.unit.begin_command(attempt.path));
        let (path, command) = (attempt.path, attempt.command);
        self.outputs.push_back(Output::Send { attempt: id, path, command });
    }

    /// Aborts an attempt that its request does not need any more.
    fn abort(&mut self, disk: DiskId, engine: requests::AttemptId, now: Instant) {
        if self.flushes.cancel(disk, engine) {
            return self.end_of_engine(disk, engine, AttemptEnd::GIVEN_UP, now);
        }
        let id = AttemptId(AttemptKey::OfRequest(disk, engine));
        match self.attempts.get(id).map(|attempt| attempt.progress) {
            Some(Progress::Sent(_)) => self.outputs.push_back(Output::Abort(id)),
            // The attempt is not in flight: it waits, or has ended with a GOOD that is not trusted yet.
            Some(Progress::Held | Progress::Unproven(_)) => self.withdraw(id, now),
            None => {}
        }
    }
}

impl<E: Clone> Default for Machine<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
