//! A class at its place in the tree.

use std::time::Instant;

use crate::bucket::Bucket;
use crate::class::Class;
use crate::class_id::ClassId;
use crate::deficit::Deficit;
use crate::queue::Queue;
use crate::statistics::Statistics;

/// Who goes first among the classes that may send now: the lowest turn.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Turn {
    /// Where the lender stands: 0 is the class itself, the root the highest level.
    pub(crate) level: usize,
    pub(crate) priority: u8,
}

/// A class, its place, and what it has to spend.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: ClassId,
    pub(crate) class: Class,
    pub(crate) parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    /// Classes above it.
    pub(crate) depth: usize,
    pub(crate) rate: Bucket,
    pub(crate) ceil: Bucket,
    debts: Debts,
    pub(crate) queue: Queue,
    /// When it may send, in the election that is held.
    pub(crate) turn: Option<Turn>,
    /// The last election in which it, or a class below it, stood.
    pub(crate) election: u64,
    pub(crate) statistics: Statistics,
}

/// What a class owes to its siblings.
#[derive(Clone, Copy, Debug, Default)]
struct Debts {
    /// For what it has lent itself, or its descendants.
    guaranteed: Deficit,
    /// For what was borrowed from above.
    borrowed: Deficit,
}

impl Debts {
    fn of(&mut self, is_borrowed: bool) -> &mut Deficit {
        if is_borrowed { &mut self.borrowed } else { &mut self.guaranteed }
    }
}

impl Node {
    pub(crate) fn new(id: ClassId, class: Class, parent: Option<&Self>, now: Instant) -> Self {
        Self {
            id,
            class,
            parent: parent.map(|parent| parent.id.slot),
            children: Vec::new(),
            depth: parent.map_or(0, |parent| parent.depth + 1),
            rate: Bucket::new(class.rate, class.depth(), now),
            ceil: Bucket::new(class.ceil, class.ceil_depth(), now),
            debts: Debts::default(),
            queue: Queue::default(),
            turn: None,
            election: 0,
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn fill(&mut self, now: Instant) {
        self.rate.fill(now);
        self.ceil.fill(now);
    }

    /// The same after a time in which a ceil above held back what it could have sent, up to `until`: of what
    /// it is guaranteed, nothing is lost by that.
    pub(crate) fn fill_held(&mut self, until: Instant, now: Instant) {
        let until = until.min(now);
        self.rate.fill_beyond(until, self.class.rate);
        self.ceil.fill_beyond(until, self.class.rate);
        self.fill(now);
    }

    pub(crate) fn change(&mut self, class: Class, now: Instant) {
        self.rate.change(class.rate, class.depth(), now);
        self.ceil.change(class.ceil, class.ceil_depth(), now);
        self.class = class;
    }

    /// How long the round of its parent is until it has the turn.
    pub(crate) fn until_turn(&self, is_borrowed: bool) -> u128 {
        let Debts { guaranteed, borrowed } = self.debts;
        let deficit = if is_borrowed { borrowed } else { guaranteed };
        deficit.until_turn(self.class.share())
    }

    /// A round of its parent goes by.
    pub(crate) fn pay(&mut self, round: u128, is_borrowed: bool) {
        let weight = self.class.share();
        self.debts.of(is_borrowed).pay(round, weight);
    }

    /// It has sent so many bytes, which its siblings have not.
    pub(crate) fn owe(&mut self, bytes: u64, is_borrowed: bool) {
        self.debts.of(is_borrowed).owe(bytes);
    }

    /// A request of so many bytes, for which it owes, has moved another number of them.
    pub(crate) fn correct_debt(&mut self, bytes: u64, moved: u64, is_borrowed: bool) {
        let deficit = self.debts.of(is_borrowed);
        if moved > bytes {
            deficit.owe(moved - bytes);
        } else {
            deficit.forgive(bytes - moved, bytes);
        }
    }
}
