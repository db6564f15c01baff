//! Requests that may not be.

use crate::cookie::Cookie;
use crate::errno::Errno;

/// A request that breaks what was negotiated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Names the request in its reply.
    pub cookie: Cookie,
    /// The error that the client receives.
    pub errno: Errno,
    /// The reason, for people.
    pub reason: &'static str,
}
