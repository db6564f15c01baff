//! Classes as a tree, which may change while requests wait in it.
//!
//! Design: `docs/design/shaper.md`.

use std::time::Instant;

use iscsi_rate::Rate;
use thiserror::Error;

use crate::class::{Class, ClassError};
use crate::class_id::ClassId;
use crate::node::Node;
use crate::rate_limit::RateLimit;
use crate::statistics::Statistics;

/// Index of the root.
const ROOT: usize = 0;
/// Index of the default class.
const DEFAULT: usize = 1;

/// Classes of requests that share the rate of the root: hierarchical token buckets.
///
/// Requests [wait](Self::request) in the classes that have no others below them, and are
/// [granted](Self::poll_grant) in turn. Requests without a class wait in the default class, which always
/// exists. It has no guaranteed rate, borrows what the root has to spare after all other classes, and may be
/// [changed](Self::change).
///
/// After any call that takes `&mut self` and `now`, the driver drains [`poll_grant`](Self::poll_grant), then
/// waits until [`poll_timeout`](Self::poll_timeout).
///
/// Invariant: the sum of the rates of a class's children is at most its own rate, so every guarantee can be
/// kept.
#[doc(alias("HTB", "token bucket", "QoS"))]
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    /// Indexes of removed classes.
    vacant: Vec<usize>,
    /// The last serial number of a class or a request.
    pub(crate) serial: u64,
    /// Classes in which requests wait.
    pub(crate) waiting: Vec<usize>,
    /// Classes that will have tokens for a request before the ceil of an ancestor lets it pass, each with the
    /// time until which the delay is due to the ceil.
    pub(crate) held: Vec<(usize, Instant)>,
    /// Number of elections so far. Each election chooses the class that sends next.
    pub(crate) elections: u64,
}

/// Reasons why a tree refuses a change.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TreeError {
    /// The settings of the class are not valid.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// The class was removed, or belongs to another tree.
    #[error("there is no such class")]
    Unknown,
    /// The guaranteed rates of the children together exceed the rate of their parent.
    #[error(
        "the rates of the classes are {sum} bit/s together, their parent's is {parent}; lower them, or raise that first"
    )]
    Overcommitted {
        /// Sum of the rates of the children, in bits per second; a child without a limit counts as
        /// [`Rate::MAX`].
        sum: u64,
        /// Rate of the parent.
        parent: RateLimit,
    },
    /// The tree would have more than [`Tree::MAX_LEVELS`] levels.
    #[error("a tree has {} levels at most", Tree::MAX_LEVELS)]
    TooDeep,
    /// Requests wait in the class, or it is the default class. Such a class cannot have children.
    #[error("requests wait in this class, or will: it can have no class below it")]
    HoldsRequests,
    /// The class has children, which must be removed first.
    #[error("there are classes below this one; remove them first")]
    HasChildren,
    /// The class is the root or the default class, which cannot be removed.
    #[error("the root and the default class cannot be removed")]
    Permanent,
}

impl Tree {
    /// The most levels of a tree, including the root's.
    pub const MAX_LEVELS: usize = 8;

    /// Creates a tree with the root, whose rate is shared, and the default class. The root has no parent to
    /// borrow from, so its rate is its limit.
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

    /// Returns the class at the top.
    #[must_use]
    pub fn root(&self) -> ClassId {
        self.nodes[ROOT].id
    }

    /// Returns the class of requests that have no other class.
    #[must_use]
    pub fn default_class(&self) -> ClassId {
        self.nodes[DEFAULT].id
    }

    /// Adds a class below `parent`, with full buckets.
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

    /// Changes the settings of a class. Requests that wait in the class continue to wait under the new settings.
    ///
    /// # Errors
    /// [`TreeError::Class`], [`TreeError::Unknown`], and [`TreeError::Overcommitted`] if the new rate is less
    /// than the sum of its children's rates, or makes the sum of its siblings' rates exceed the rate of the
    /// parent.
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

    /// Removes a class. Requests that wait in it move to the default class, in the order in which they came.
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
        // From here on, no class has the identifier of the removed one.
        self.nodes[slot].id.serial = self.serial;
        self.vacant.push(slot);
        Ok(())
    }

    /// Returns the settings of a class; `None` if it was removed.
    #[must_use]
    pub fn class(&self, id: ClassId) -> Option<Class> {
        self.find(id).ok().map(|slot| self.nodes[slot].class)
    }

    /// Returns the statistics of a class; `None` if it was removed.
    #[must_use]
    pub fn statistics(&self, id: ClassId) -> Option<Statistics> {
        let node = &self.nodes[self.find(id).ok()?];
        Some(Statistics { waiting: node.queue.len(), ..node.statistics })
    }

    /// Returns the most that a class may send: the lowest of its own ceil and the limits of its ancestors. For a
    /// class that was removed, has classes below it, or is the root, this is the limit of the default class, in
    /// which its requests wait.
    #[must_use]
    pub fn ceil(&self, id: ClassId) -> RateLimit {
        let limit = |slot: usize| {
            let class = self.nodes[slot].class;
            // The root cannot borrow, so its rate is its limit.
            if slot == ROOT { class.rate } else { class.ceil }
        };
        self.path(self.leaf(id)).map(limit).min().unwrap_or(RateLimit::Unlimited)
    }

    /// Returns the recommended length limit of a request of a class, in bytes: the bytes that its
    /// [ceil](Self::ceil) lets pass in [`Class::TIME_SLICE`]. `None` if there is no limit. A longer request
    /// passes as well, but delays other requests.
    #[must_use]
    pub fn max_request_len(&self, id: ClassId) -> Option<u64> {
        self.ceil(id).bytes_in(Class::TIME_SLICE)
    }

    /// Returns the class in which requests of the class `id` wait. This is the default class if `id` was
    /// removed, has classes below it, or is the root.
    pub(crate) fn leaf(&self, id: ClassId) -> usize {
        self.find(id)
            .ok()
            .filter(|slot| self.nodes[*slot].children.is_empty() && *slot != ROOT)
            .unwrap_or(DEFAULT)
    }

    /// Returns a class and the classes above it, up to the root.
    pub(crate) fn path(&self, slot: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(slot), |slot| self.nodes[*slot].parent)
    }

    pub(crate) fn find(&self, id: ClassId) -> Result<usize, TreeError> {
        let node = self.nodes.get(id.slot).filter(|node| node.id == id);
        node.map(|node| node.id.slot).ok_or(TreeError::Unknown)
    }

    /// Fills the buckets of the classes that a ceil has held back. Tokens of that time are kept beyond the
    /// depth.
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

/// Checks that the settings agree with each other and let requests pass.
fn check(class: &Class, is_root: bool) -> Result<(), ClassError> {
    if is_root && class.rate == RateLimit::Zero {
        return Err(ClassError::NothingPasses);
    }
    class.check()
}

/// Checks that a parent can guarantee these rates.
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
