//! Identifiers of classes.

/// Identifies a class of a [`Tree`](crate::Tree). No other class of that tree ever has the same identifier.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClassId {
    /// Index of the node.
    pub(crate) slot: usize,
    /// Serial number, because an index may be used again.
    pub(crate) serial: u64,
}
