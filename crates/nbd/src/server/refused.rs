//! Requests that may not be.

use crate::cookie::Cookie;
use crate::errno::Errno;

/// A request that breaks what was negotiated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Names the request in its reply.
    pub cookie: Cookie,
    /// What the client is told.
    pub errno: Errno,
    /// The same for people.
    pub reason: &'static str,
}
