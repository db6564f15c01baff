//! The name of a class.

/// Names a class of a [`Tree`](crate::Tree). No other class of it ever has the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClassId {
    /// The place of its node.
    pub(crate) slot: usize,
    /// Counts up: a place may be taken again.
    pub(crate) serial: u64,
}
