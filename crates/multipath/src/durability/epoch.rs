//! Logical time of a disk.

/// Logical time of a disk. Only events that matter to the durability of writes advance it: a session that
/// joins, the report of a reset, a command that may have hidden one, and a failure to write.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch(u64);

impl Epoch {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
