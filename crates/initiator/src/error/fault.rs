//! Whose fault an error is.

/// Whose fault an [`Error`](crate::Error) is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The caller asked for what cannot be: another request is needed.
    Caller,
    /// The target or its unit failed, or refuses.
    Target,
    /// The way to the target.
    Network,
}
