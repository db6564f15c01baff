//! Classes as a tree, which may change while requests wait in it.
//!
//! Why it is so: `docs/design/shaper.md`.

use std::time::Instant;

use iscsi_rate::Rate;
use thiserror::Error;

use crate::class::{Class, ClassError};
use crate::class_id::ClassId;
use crate::node::Node;
use crate::rate_limit::RateLimit;
use crate::statistics::Statistics;

/// The place of the root.
const ROOT: usize = 0;
/// The place of the default class.
const DEFAULT: usize = 1;

/// Classes of requests that share what the root has: hierarchical token buckets.
///
/// Requests [wait](Self::request) in the classes that have no others below them, and are
/// [granted](Self::poll_grant) in turn. There is always a default class, for requests without a class: it
/// has no guaranteed rate, borrows what the root has to spare after all others, and may be
/// [changed](Self::change).
///
/// The rule for the driver: after any call that takes `&mut self` and `now`, drain
/// [`poll_grant`](Self::poll_grant), then wait until [`poll_timeout`](Self::poll_timeout).
///
/// Invariant: the rates of a class's children are together no more than its own, so every guarantee can
/// be kept.
#[doc(alias("HTB", "token bucket", "QoS"))]
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    /// Places of classes that were removed.
    vacant: Vec<usize>,
    /// How many classes and requests there were.
    pub(crate) serial: u64,
    /// Classes in which requests wait.
    pub(crate) waiting: Vec<usize>,
    /// Classes that will have something to send before a ceil above them lets it pass, and until when that
    /// counts.
    pub(crate) held: Vec<(usize, Instant)>,
    /// How often it was asked who is next.
    pub(crate) elections: u64,
}

/// Reasons why a tree refuses a change.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TreeError {
    /// The settings of the class.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// The class was removed, or belongs to another tree.
    #[error("there is no such class")]
    Unknown,
    /// More is guaranteed than there is.
    #[error(
        "the rates of the classes are {sum} bit/s together, their parent's is {parent}; lower them, or raise that first"
    )]
    Overcommitted {
        /// The rates of the children, bits a second; of those without a limit, [`Rate::MAX`].
        sum: u64,
        /// The rate of the parent.
        parent: RateLimit,
    },
    /// There is an end to levels.
    #[error("a tree has {} levels at most", Tree::MAX_LEVELS)]
    TooDeep,
    /// Requests wait in classes without children only.
    #[error("requests wait in this class, or will: it can have no class below it")]
    HoldsRequests,
    /// A class is removed after those below it.
    #[error("there are classes below this one; remove them first")]
    HasChildren,
    /// The root and the default class stay.
    #[error("the root and the default class cannot be removed")]
    Permanent,
}

impl Tree {
    /// The most levels of a tree, including the root's.
    pub const MAX_LEVELS: usize = 8;

    /// Creates a tree of the root, which holds the capacity to share, and the default class. The root has
    /// no parent to borrow from, so its rate is its limit.
    ///
    /// # Errors
    /// [`TreeError::Class`].
    pub fn new(root: Class, now: Instant) -> Result<Self, TreeError> {
        check(&root, true)?;
        let root = Node::new(ClassId { slot: ROOT, serial: 0 }, root, None, now);
        let mut tree = Self {
            nodes: vec![root],
            vacant: Vec::new(),
            serial: 0,
            waiting: Vec::new(),
            held: Vec::new(),
            elections: 0,
        };
        let spare = Class::new(RateLimit::Zero).with_ceil(RateLimit::Unlimited);
        tree.insert(ROOT, spare.with_priority(Class::LAST_PRIORITY), now);
        Ok(tree)
    }

    /// The class at the top.
    #[must_use]
    pub fn root(&self) -> ClassId {
        self.nodes[ROOT].id
    }

    /// The class of requests that have none.
    #[must_use]
    pub fn default_class(&self) -> ClassId {
        self.nodes[DEFAULT].id
    }

    /// Adds a class below another, with full buckets.
    ///
    /// # Errors
    /// [`TreeError::Class`], [`TreeError::Unknown`], [`TreeError::Overcommitted`], [`TreeError::TooDeep`],
    /// and [`TreeError::HoldsRequests`] for a parent in which requests wait, or the default class.
    pub fn add(
        &mut self,
        parent: ClassId,
        class: Class,
        now: Instant,
    ) -> Result<ClassId, TreeError> {
        class.check()?;
        let parent = self.find(parent)?;
        let node = &self.nodes[parent];
        if parent == DEFAULT || !node.queue.is_empty() {
            return Err(TreeError::HoldsRequests);
        }
        if node.depth + 1 >= Self::MAX_LEVELS {
            return Err(TreeError::TooDeep);
        }
        let rates = node.children.iter().map(|child| self.nodes[*child].class.rate);
        check_sum(rates.chain([class.rate]), node.class.rate)?;
        Ok(self.insert(parent, class, now))
    }

    /// Gives a class other settings, from now on. What waits in it goes on waiting; nothing pauses.
    ///
    /// # Errors
    /// [`TreeError::Class`], [`TreeError::Unknown`], and [`TreeError::Overcommitted`] if its rate is less
    /// than its children's, or too much for its parent's.
    pub fn change(&mut self, id: ClassId, class: Class, now: Instant) -> Result<(), TreeError> {
        let slot = self.find(id)?;
        check(&class, slot == ROOT)?;
        let node = &self.nodes[slot];
        let of =
            |child: &usize| if *child == slot { class.rate } else { self.nodes[*child].class.rate };
        check_sum(node.children.iter().map(of), class.rate)?;
        if let Some(parent) = node.parent {
            let parent = &self.nodes[parent];
            check_sum(parent.children.iter().map(of), parent.class.rate)?;
        }
        self.fill_held(now);
        self.nodes[slot].change(class, now);
        Ok(())
    }

    /// Removes a class. Requests that wait in it go to the default class, by the time at which they came.
    ///
    /// # Errors
    /// [`TreeError::Unknown`], [`TreeError::HasChildren`], [`TreeError::Permanent`].
    pub fn remove(&mut self, id: ClassId, now: Instant) -> Result<(), TreeError> {
        let slot = self.find(id)?;
        if slot == ROOT || slot == DEFAULT {
            return Err(TreeError::Permanent);
        }
        if !self.nodes[slot].children.is_empty() {
            return Err(TreeError::HasChildren);
        }
        self.fill_held(now);
        if let Some(parent) = self.nodes[slot].parent {
            self.nodes[parent].children.retain(|child| *child != slot);
        }
        let queue = std::mem::take(&mut self.nodes[slot].queue);
        if !queue.is_empty() {
            self.waiting.retain(|waiting| *waiting != slot);
            if self.nodes[DEFAULT].queue.is_empty() {
                self.waiting.push(DEFAULT);
            }
            self.nodes[DEFAULT].queue.merge(queue);
        }
        self.serial += 1;
        // Nobody has this name.
        self.nodes[slot].id.serial = self.serial;
        self.vacant.push(slot);
        Ok(())
    }

    /// The settings of a class.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<Class> {
        self.find(id).ok().map(|slot| self.nodes[slot].class)
    }

    /// Returns the statistics of a class.
    #[must_use]
    pub fn statistics(&self, id: ClassId) -> Option<Statistics> {
        let node = &self.nodes[self.find(id).ok()?];
        Some(Statistics { waiting: node.queue.len(), ..node.statistics })
    }

    /// The most that a class may send: its ceil, or the narrowest above it.
    #[must_use]
    pub fn ceil(&self, id: ClassId) -> RateLimit {
        let limit = |slot: usize| {
            let class = self.nodes[slot].class;
            // The root has nobody to borrow from.
            if slot == ROOT { class.rate } else { class.ceil }
        };
        self.path(self.leaf(id)).map(limit).min().unwrap_or(RateLimit::Unlimited)
    }

    /// The longest that a request of a class should be, bytes: what its [ceil](Self::ceil) passes in
    /// [`Class::TIME_SLICE`]. `None` where there is no limit. A longer one passes as well, but keeps the
    /// others waiting.
    #[must_use]
    pub fn max_request_len(&self, id: ClassId) -> Option<u64> {
        self.ceil(id).bytes_in(Class::TIME_SLICE)
    }

    /// The class that requests of a class wait in: the default one, if that was removed, or has others
    /// below it.
    pub(crate) fn leaf(&self, id: ClassId) -> usize {
        self.find(id)
            .ok()
            .filter(|slot| self.nodes[*slot].children.is_empty() && *slot != ROOT)
            .unwrap_or(DEFAULT)
    }

    /// A class, and those above it up to the root.
    pub(crate) fn path(&self, slot: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(slot), |slot| self.nodes[*slot].parent)
    }

    pub(crate) fn find(&self, id: ClassId) -> Result<usize, TreeError> {
        let node = self.nodes.get(id.slot).filter(|node| node.id == id);
        node.map(|node| node.id.slot).ok_or(TreeError::Unknown)
    }

    /// What is guaranteed is not lost while a ceil above holds it back.
    pub(crate) fn fill_held(&mut self, now: Instant) {
        for (slot, until) in self.held.drain(..) {
            self.nodes[slot].fill_held(until, now);
        }
    }

    fn insert(&mut self, parent: usize, class: Class, now: Instant) -> ClassId {
        self.serial += 1;
        let slot = self.vacant.pop().unwrap_or(self.nodes.len());
        let id = ClassId { slot, serial: self.serial };
        let node = Node::new(id, class, Some(&self.nodes[parent]), now);
        match self.nodes.get_mut(slot) {
            Some(vacant) => *vacant = node,
            None => self.nodes.push(node),
        }
        self.nodes[parent].children.push(slot);
        id
    }
}

/// Whether the settings agree with each other, and let something pass.
fn check(class: &Class, is_root: bool) -> Result<(), ClassError> {
    if is_root && class.rate == RateLimit::Zero {
        return Err(ClassError::NothingPasses);
    }
    class.check()
}

/// Whether a parent can guarantee these rates.
fn check_sum(rates: impl Iterator<Item = RateLimit>, parent: RateLimit) -> Result<(), TreeError> {
    let Some(limit) = parent.bits_per_second() else { return Ok(()) };
    let bits = |rate: RateLimit| rate.bits_per_second().unwrap_or(Rate::MAX.bits_per_second());
    let (mut sum, mut is_unlimited) = (0_u64, false);
    for rate in rates {
        is_unlimited |= rate == RateLimit::Unlimited;
        sum = sum.saturating_add(bits(rate));
    }
    if sum > limit || is_unlimited {
        return Err(TreeError::Overcommitted { sum, parent });
    }
    Ok(())
}
