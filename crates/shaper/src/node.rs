//! The state of a class in the tree.

use std::time::Instant;

use crate::bucket::Bucket;
use crate::class::Class;
use crate::class_id::ClassId;
use crate::deficit::Deficit;
use crate::queue::Queue;
use crate::statistics::Statistics;

/// Rank of a class among those that may send now; the lowest goes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Turn {
    /// Level of the class that lends: 0 for the class itself, the highest level for the root.
    pub(crate) level: usize,
    pub(crate) priority: u8,
}

/// A class, its place in the tree, and its tokens.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: ClassId,
    pub(crate) class: Class,
    pub(crate) parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    /// Number of classes above this one; 0 for the root.
    pub(crate) depth: usize,
    pub(crate) rate: Bucket,
    pub(crate) ceil: Bucket,
    debts: Debts,
    pub(crate) queue: Queue,
    /// The turn of the class when a request was last chosen (an election); `None` if the class may not
    /// send.
    pub(crate) turn: Option<Turn>,
    /// The last election in which the class, or a class below it, was a candidate.
    pub(crate) election: u64,
    pub(crate) statistics: Statistics,
}

/// Debts of a class to its siblings.
#[derive(Clone, Copy, Debug, Default)]
struct Debts {
    /// For requests within the guaranteed rate: the class, or a class below it, has lent the tokens.
    guaranteed: Deficit,
    /// For requests that were borrowed from an ancestor.
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

    /// Fills the buckets after the ceil of an ancestor has held the class back, until `until`. Tokens that
    /// came at the guaranteed rate in that time are kept beyond the depth, so that no part of the guarantee
    /// is lost.
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

    /// Returns the length of the shortest round of the parent after which the class has the turn.
    pub(crate) fn until_turn(&self, is_borrowed: bool) -> u128 {
        let Debts { guaranteed, borrowed } = self.debts;
        let deficit = if is_borrowed { borrowed } else { guaranteed };
        deficit.until_turn(self.class.share())
    }

    /// Pays for a round of length `round` among the children of the parent.
    pub(crate) fn pay(&mut self, round: u128, is_borrowed: bool) {
        let weight = self.class.share();
        self.debts.of(is_borrowed).pay(round, weight);
    }

    /// Adds the debt of a request of `bytes` bytes to the siblings.
    pub(crate) fn owe(&mut self, bytes: u64, is_borrowed: bool) {
        self.debts.of(is_borrowed).owe(bytes);
    }

    /// Corrects the debt of a request that was granted with `bytes` bytes and moved `moved` bytes.
    pub(crate) fn correct_debt(&mut self, bytes: u64, moved: u64, is_borrowed: bool) {
        let deficit = self.debts.of(is_borrowed);
        if moved > bytes {
            deficit.owe(moved - bytes);
        } else {
            deficit.forgive(bytes - moved, bytes);
        }
    }
}
