//! Defines the side whose fault an error is.

/// Which side an [`Error`](crate::Error) comes from: caller, target or network.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The caller made a request that cannot be executed: change the request.
    Caller,
    /// The target or its unit failed, or refused the request.
    Target,
    /// The network path to the target failed.
    Network,
}
