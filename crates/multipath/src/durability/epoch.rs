//! Moments in the life of a disk.

/// A moment in the life of a disk. Only events that matter to the durability of writes make a new one: a session that joins,
/// and the report of a reset. What lies between two of them is one moment.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch(u64);

impl Epoch {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
