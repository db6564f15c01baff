//! Describes requests that break the negotiated terms.

use crate::cookie::Cookie;
use crate::errno::Errno;

/// A request that breaks the negotiated terms.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Id of the request in its reply.
    pub cookie: Cookie,
    /// The error that the client receives.
    pub errno: Errno,
    /// The reason, as readable text.
    pub reason: &'static str,
}
