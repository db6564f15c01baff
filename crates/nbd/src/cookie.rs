//! What names a request in its replies.

/// Chosen by the client, and repeated by the server in each reply to the request (NBD, "Request
/// message"; older texts say handle).
///
/// Unique among the requests under way on a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cookie(pub u64);
