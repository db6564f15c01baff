//! Decides which requests may be sent, and when.

use std::time::{Duration, Instant};

use crate::class::Class;
use crate::class_id::ClassId;
use crate::node::Turn;
use crate::queue::Waiting;
use crate::tree::Tree;

/// Identifies a request of a [`Tree`]. No other request of that tree ever has the same identifier.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket {
    /// Serial number over all classes.
    serial: u64,
    /// The class in which the request began to wait.
    class: ClassId,
}

/// A request that may be sent now. The tree has charged `bytes`; if the request moves another number of bytes,
/// call [`Tree::correct`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Grant {
    /// The request.
    pub ticket: Ticket,
    /// The class in which the request waited last.
    pub class: ClassId,
    /// The bytes that the request is charged with.
    pub bytes: u64,
    /// The time that the request waited.
    pub waited: Duration,
    /// The class that has lent the bytes; `class` itself if the request was within its own rate.
    pub lender: ClassId,
    /// The classes that are charged, from `class` up. Unused elements hold the root.
    path: [ClassId; Tree::MAX_LEVELS],
}

impl Tree {
    /// Adds a request of `bytes` bytes. It waits in its class, or in the default class if its class was
    /// removed or has classes below it.
    ///
    /// Send a read, like a write, only when it is granted. The data of the reads then arrive at the rate at which
    /// the reads were sent, one response time later.
    pub fn request(&mut self, class: ClassId, bytes: u64, now: Instant) -> Ticket {
        let leaf = self.leaf(class);
        self.serial += 1;
        let serial = self.serial;
        if self.nodes[leaf].queue.is_empty() {
            self.waiting.push(leaf);
        }
        let class = self.nodes[leaf].id;
        self.nodes[leaf].queue.push(Waiting { serial, class, bytes, since: now });
        Ticket { serial, class }
    }

    /// Cancels a request, and returns whether it was still waiting.
    pub fn cancel(&mut self, ticket: Ticket, now: Instant) -> bool {
        self.fill_held(now);
        let leaf = self.leaf(ticket.class);
        // A request whose class was removed waits in the default class.
        let queue = &mut self.nodes[leaf].queue;
        let is_found = queue.remove(ticket.serial).is_some();
        if is_found && queue.is_empty() {
            self.waiting.retain(|waiting| *waiting != leaf);
        }
        is_found
    }

    /// Returns the next request that may be sent now; `None` if there is none. A request within the rate of its
    /// class goes before any request that borrows. Among requests that borrow, the one whose lender is on a lower
    /// level of the tree, further from the root, goes first. On one level the priority decides, and within one
    /// priority the weight.
    pub fn poll_grant(&mut self, now: Instant) -> Option<Grant> {
        self.fill_held(now);
        let Some(turn) = self.stand(now) else {
            self.hold(now);
            return None;
        };
        let leaf = self.elect(turn);
        self.grant(leaf, now)
    }

    /// Returns when [`poll_grant`](Self::poll_grant) will return the next request, if nothing else happens
    /// until then; `None` if no request waits. The time may be in the past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        // No class may send before the root lets a request pass, so the search ends at the first class that may
        // send then.
        let earliest = self.nodes[self.root().slot].ceil.ready_at();
        let mut first = None;
        for leaf in &self.waiting {
            let ready = self.ready_at(*leaf);
            if ready.is_some() && ready == earliest {
                return ready;
            }
            first = first.into_iter().chain(ready).min();
        }
        first
    }

    /// Corrects a granted request that has moved another number of bytes than it was charged with: 0 if it was
    /// not sent, fewer if a read returned fewer. The difference goes back to the buckets and turns from which
    /// it was taken, or is charged there. If a class was removed meanwhile, only the classes above it are
    /// corrected.
    pub fn correct(&mut self, grant: &Grant, moved: u64, now: Instant) {
        self.fill_held(now);
        let gone = grant.path.iter().take_while(|id| self.find(**id).is_err()).count();
        let (less, more) = (grant.bytes.saturating_sub(moved), moved.saturating_sub(grant.bytes));
        let mut is_lent = grant.path[..gone].contains(&grant.lender);
        let mut next = grant.path.get(gone).map(|id| id.slot);
        while let Some(slot) = next {
            let node = &mut self.nodes[slot];
            node.fill(now);
            let is_lender = node.id == grant.lender;
            is_lent |= is_lender;
            let buckets = [Some(&mut node.ceil), is_lent.then_some(&mut node.rate)];
            for bucket in buckets.into_iter().flatten() {
                bucket.refund(less);
                bucket.charge(more);
            }
            node.correct_debt(grant.bytes, moved, !is_lent);
            node.statistics.sent.correct(grant.bytes, moved);
            if !is_lent {
                node.statistics.borrowed.correct(grant.bytes, moved);
            } else if is_lender && node.id != grant.class {
                node.statistics.lent.correct(grant.bytes, moved);
            }
            next = node.parent;
        }
    }

    /// Sets the turn of each class whose request may be sent, and marks the classes that have the first turn
    /// as candidates. Returns the first turn.
    fn stand(&mut self, now: Instant) -> Option<Turn> {
        let mut first: Option<Turn> = None;
        if !self.nodes[self.root().slot].ceil.is_ready(now) {
            return None;
        }
        for at in 0..self.waiting.len() {
            let leaf = self.waiting[at];
            let turn = self.lender(leaf, now).map(|lender| self.turn(leaf, lender));
            self.nodes[leaf].turn = turn;
            first = first.into_iter().chain(turn).min();
        }
        let first = first?;
        self.elections += 1;
        for at in 0..self.waiting.len() {
            let leaf = self.waiting[at];
            let mut next = (self.nodes[leaf].turn == Some(first)).then_some(leaf);
            while let Some(slot) = next {
                self.nodes[slot].election = self.elections;
                next = self.nodes[slot].parent;
            }
        }
        Some(first)
    }

    /// Returns the class whose tokens `leaf` may spend at `now`; `None` if no class of its path has tokens, or a
    /// ceil of the path holds the request back. The ceils of all ancestors apply, also above the lender, so no
    /// ceil is ever exceeded for a guarantee. A guaranteed request may be late for that reason, but loses nothing
    /// of the guarantee.
    fn lender(&self, leaf: usize, now: Instant) -> Option<usize> {
        let mut lender = None;
        for slot in self.path(leaf) {
            let node = &self.nodes[slot];
            if !node.ceil.is_ready(now) {
                return None;
            }
            if lender.is_none() && node.rate.is_ready(now) {
                lender = Some(slot);
            }
        }
        lender
    }

    /// Notes the classes that will have tokens for a request before the ceil of an ancestor lets it pass.
    fn hold(&mut self, now: Instant) {
        let mut held = std::mem::take(&mut self.held);
        let from_now = |ready: Option<Instant>| ready.map(|ready| ready.max(now));
        let ceil = |slot: usize| (slot, from_now(self.nodes[slot].ceil.ready_at()));
        let mut path: Vec<(usize, Option<Instant>)> = Vec::with_capacity(Self::MAX_LEVELS);
        for leaf in &self.waiting {
            path.clear();
            path.extend(self.path(*leaf).map(ceil));
            let (mut below, mut is_held) = (None, false);
            for (at, (slot, ceil)) in path.iter().enumerate() {
                below = below.max(*ceil);
                let above = path[at + 1..].iter().filter_map(|(_, ceil)| *ceil).max();
                let is_first = |ready: Option<Instant>| ready.max(below) < above;
                let ready = from_now(self.nodes[*slot].rate.ready_at());
                is_held |= ready.is_some_and(|ready| is_first(Some(ready)));
                if let Some(until) = above
                    && is_held
                    && is_first(None)
                {
                    // A timer may be late by a time slice. If the next poll comes much later, as in a process
                    // that was stopped, the delay is not due to the ceil, and the tokens of that time are not
                    // kept beyond the depth.
                    let until = until.checked_add(Class::TIME_SLICE).unwrap_or(until);
                    held.push((*slot, until));
                }
            }
        }
        // Until `now` the ceil held nothing back, so the tokens of the time until `now` are limited to the depth.
        held.iter().for_each(|(slot, _)| self.nodes[*slot].fill(now));
        self.held = held;
    }

    fn turn(&self, leaf: usize, lender: usize) -> Turn {
        let level = if lender == leaf { 0 } else { Self::MAX_LEVELS - self.nodes[lender].depth };
        Turn { level, priority: self.nodes[leaf].class.priority }
    }

    /// Chooses one of the classes that have this turn, level by level from the root down.
    fn elect(&mut self, turn: Turn) -> usize {
        let mut at = self.root().slot;
        while let Some(child) = self.elect_child(at, turn) {
            at = child;
        }
        at
    }

    /// Makes all children pay for the shortest round after which one of them has the turn, and returns that
    /// child.
    fn elect_child(&mut self, parent: usize, turn: Turn) -> Option<usize> {
        let children = std::mem::take(&mut self.nodes[parent].children);
        let is_borrowed = self.nodes[parent].depth + 1 > Self::MAX_LEVELS - turn.level;
        let is_borrowed = is_borrowed && turn.level > 0;
        let candidates = children.iter().map(|child| &self.nodes[*child]);
        let candidates = candidates.filter(|node| node.election == self.elections);
        let rounds = candidates.map(|node| (node.until_turn(is_borrowed), node.id.slot));
        let next = rounds.min();
        if let Some((round, _)) = next
            && round > 0
        {
            children.iter().for_each(|child| self.nodes[*child].pay(round, is_borrowed));
        }
        self.nodes[parent].children = children;
        next.map(|(_, child)| child)
    }

    /// Takes the first request of a class, and charges the class and all classes above it.
    fn grant(&mut self, leaf: usize, now: Instant) -> Option<Grant> {
        let lender = self.lender(leaf, now)?;
        let Waiting { serial, class: began, bytes, since } = self.nodes[leaf].queue.pop()?;
        if self.nodes[leaf].queue.is_empty() {
            self.waiting.retain(|waiting| *waiting != leaf);
        }
        let waited = now.saturating_duration_since(since);
        let (class, lender) = (self.nodes[leaf].id, self.nodes[lender].id);
        let mut path = [self.root(); Self::MAX_LEVELS];
        for (id, slot) in path.iter_mut().zip(self.path(leaf)) {
            *id = self.nodes[slot].id;
        }
        let mut is_lent = false;
        let mut next = Some(leaf);
        while let Some(slot) = next {
            let node = &mut self.nodes[slot];
            let is_lender = node.id == lender;
            is_lent |= is_lender;
            node.fill(now);
            node.ceil.charge(bytes);
            if is_lent {
                node.rate.charge(bytes);
            }
            node.owe(bytes, !is_lent);
            let statistics = &mut node.statistics;
            statistics.sent.add(bytes);
            if !is_lent {
                statistics.borrowed.add(bytes);
            } else if is_lender && slot != leaf {
                statistics.lent.add(bytes);
            }
            if !waited.is_zero() {
                statistics.waited.add(bytes);
                statistics.waiting_time = statistics.waiting_time.saturating_add(waited);
            }
            next = node.parent;
        }
        let ticket = Ticket { serial, class: began };
        Some(Grant { ticket, class, bytes, waited, lender, path })
    }

    /// Returns when the first request of a class may be sent: when all ceils of the path let it pass, and a
    /// class of the path has tokens to lend.
    fn ready_at(&self, leaf: usize) -> Option<Instant> {
        let nodes = || self.path(leaf).map(|slot| &self.nodes[slot]);
        let lent = nodes().filter_map(|node| node.rate.ready_at()).min()?;
        nodes().try_fold(lent, |ready, node| Some(ready.max(node.ceil.ready_at()?)))
    }
}
