//! Models a unit with a volatile cache, with any order of writes, resets, lost statuses, sessions and
//! flushes. The test checks that a flush without a reported loss has brought every write that had ended
//! before it onto the medium.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A session begins a write, which the unit executes.
    Write(u8),
    /// The status of the oldest write in flight of a session arrives, or is lost.
    Status(u8, bool),
    /// Any other command of a session ends, or its status is lost.
    Command(u8, bool),
    Reset,
    /// A session logs in; the unit may have an older reset to report to it.
    Join(bool),
    Leave(u8),
    /// The most suitable session flushes the writes of all sessions. The unit may be reset before it executes
    /// the flush, and after the flush.
    Flush(bool, bool),
}

struct Session {
    path: PathId,
    /// Whether the unit has yet to report a reset to the session.
    has_report: bool,
    /// Writes that the unit has executed and whose status has not arrived, and when they began.
    in_flight: Vec<(u32, Epoch)>,
}

struct World {
    known: Durability,
    sessions: Vec<Session>,
    next_path: u32,
    next_write: u32,
    /// Writes that are in the cache.
    cache: BTreeSet<u32>,
    /// Writes that ended with GOOD, and are neither flushed nor reported as lost.
    ended: BTreeSet<u32>,
    medium: BTreeSet<u32>,
    reported_losses: u32,
    flushes: u32,
}

impl World {
    fn new() -> Self {
        Self {
            known: cached(),
            sessions: vec![Session { path: FIRST, has_report: false, in_flight: Vec::new() }],
            next_path: 1,
            next_write: 0,
            cache: BTreeSet::new(),
            ended: BTreeSet::new(),
            medium: BTreeSet::new(),
            reported_losses: 0,
            flushes: 0,
        }
    }

    fn place(&self, which: u8) -> usize {
        usize::from(which) % self.sessions.len()
    }

    /// Ends a command of a session. Returns whether its status shows that the unit has executed it: the unit may
    /// report a reset instead, or the status may be lost.
    fn is_executed(&mut self, at: usize, has_status: bool) -> bool {
        let session = &mut self.sessions[at];
        match (std::mem::take(&mut session.has_report), has_status) {
            (_, false) => self.known.on_uncertain_end(session.path),
            (true, true) => self.known.on_reset(session.path),
            (false, true) => return true,
        }
        false
    }

    fn end_write(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        if !session.in_flight.is_empty() {
            let (write, begun) = session.in_flight.remove(0);
            self.known.on_write(session.path, begun);
            self.ended.insert(write);
        }
    }

    fn reset(&mut self) {
        self.cache.clear();
        self.sessions.iter_mut().for_each(|session| session.has_report = true);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write(which) => {
                let (at, begun) = (self.place(which), self.known.now());
                if self.is_executed(at, true) {
                    self.cache.insert(self.next_write);
                    self.sessions[at].in_flight.push((self.next_write, begun));
                    self.next_write += 1;
                }
            }
            Step::Status(which, true) => self.end_write(self.place(which)),
            Step::Status(which, false) => {
                let at = self.place(which);
                let session = &mut self.sessions[at];
                if !session.in_flight.is_empty() {
                    session.in_flight.remove(0);
                    self.known.on_uncertain_end(session.path);
                }
            }
            Step::Command(which, has_status) => {
                let (at, begun) = (self.place(which), self.known.now());
                if self.is_executed(at, has_status) {
                    self.known.accept(self.sessions[at].path, begun);
                }
            }
            Step::Reset => self.reset(),
            Step::Join(has_report) => {
                let path = PathId(self.next_path);
                self.next_path += 1;
                self.known.join(path);
                self.sessions.push(Session { path, has_report, in_flight: Vec::new() });
            }
            Step::Leave(which) if self.sessions.len() > 1 => {
                let session = self.sessions.remove(self.place(which));
                self.known.leave(session.path);
            }
            Step::Leave(_) => {}
            Step::Flush(before, after) => self.flush(before, after),
        }
    }

    fn flush(&mut self, is_reset_before: bool, is_reset_after: bool) {
        let (seen, must_be_there) = (self.known.losses(), self.ended.clone());
        let rank = |at: &usize| {
            let rank = self.known.flush_rank(self.sessions[*at].path);
            (!rank.is_witness, rank.may_know_reset, rank.last_reset)
        };
        let Some(at) = (0..self.sessions.len()).min_by_key(rank) else { return };
        let flush = self.known.begin_flush(self.sessions[at].path);
        if is_reset_before {
            self.reset();
        }
        // If the unit reports a reset instead of executing SYNCHRONIZE CACHE, the command is sent again.
        while !self.is_executed(at, true) {}
        self.medium.append(&mut self.cache);
        if is_reset_after {
            self.reset();
        }
        // All commands end that the session sent before the flush.
        while !self.sessions[at].in_flight.is_empty() {
            self.end_write(at);
        }
        let witness =
            if self.known.needs_witness(&flush) { self.witness(at, &flush) } else { None };
        self.known.end_flush(flush, witness);
        self.flushes += 1;
        if self.known.losses() > seen {
            self.reported_losses += 1;
            self.ended = &self.ended & &self.cache;
        } else {
            let lost: Vec<_> = must_be_there.difference(&self.medium).collect();
            assert!(lost.is_empty(), "lost without a report: {lost:?}");
            self.ended = &self.ended - &self.medium;
        }
    }

    /// Returns the path of the most suitable witness, after the unit has reported all resets to its session;
    /// `None` if that session cannot vouch for all writes of the flush.
    fn witness(&mut self, flushing: usize, flush: &Flush) -> Option<PathId> {
        let others = (0..self.sessions.len()).filter(|at| *at != flushing);
        let at = others.min_by_key(|at| self.known.witness_rank(self.sessions[*at].path))?;
        let path = self.sessions[at].path;
        if !self.known.covers(flush, path) {
            return None;
        }
        let begun = self.known.now();
        while !self.is_executed(at, true) {}
        self.known.accept(path, begun);
        while !self.sessions[at].in_flight.is_empty() {
            self.end_write(at);
        }
        Some(path)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = 0..4_u8;
    prop::collection::vec(
        prop_oneof![
            4 => session.clone().prop_map(Step::Write),
            4 => (session.clone(), prop::bool::weighted(0.9)).prop_map(|(at, it)| Step::Status(at, it)),
            2 => (session.clone(), prop::bool::weighted(0.8)).prop_map(|(at, it)| Step::Command(at, it)),
            1 => Just(Step::Reset),
            1 => any::<bool>().prop_map(Step::Join),
            1 => session.prop_map(Step::Leave),
            3 => (prop::bool::weighted(0.1), prop::bool::weighted(0.1))
                .prop_map(|(before, after)| Step::Flush(before, after)),
        ],
        0..60,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_flush_that_reports_no_loss_has_brought_all_onto_the_medium(steps in steps()) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.take(step));
    }
}

/// Without a reset or a lost status, no flush may report a loss.
#[test]
fn a_flush_cries_no_loss_where_nothing_has_happened() {
    let mut world = World::new();
    for at in 0..100_u8 {
        world.take(Step::Write(at));
        world.take(Step::Status(at, true));
        if at % 7 == 0 {
            world.take(Step::Join(false));
            world.take(Step::Command(u8::try_from(world.sessions.len() - 1).unwrap(), true));
        }
        if at % 3 == 0 {
            world.take(Step::Flush(false, false));
        }
    }
    assert_eq!((world.reported_losses, world.flushes), (0, 34));
}
