//! Identifies a request in its replies.

/// Identifies a request: the client chooses it, and the server repeats it in each reply (NBD, "Request
/// message"; older texts call it handle).
///
/// A cookie is unique among the requests in flight on a connection.
#[doc(alias = "handle")]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cookie(pub u64);
