//! Identifiers of paths and portals.

use std::fmt;

/// Identifies a path to a logical unit: one session, from its login to its end. No number is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PathId(pub u32);

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a portal of the target by its index in the list of portals. Portals are added to that list and
/// never removed, so an index stays valid.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortalId(pub usize);

impl fmt::Display for PortalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
