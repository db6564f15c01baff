//! The states of a connection (RFC 7143 §8.1).

/// A connection, seen from the initiator (RFC 7143 §8.1).
///
/// ```text
///   FREE ──► XPT_WAIT ──► IN_LOGIN ──► LOGGED_IN ──► IN_LOGOUT ──► FREE
///               │             │            │
///               └─────────────┴──► FREE    └──► CLEANUP_WAIT ──► FREE
/// ```
/// A connection in S1, FREE, does not exist here. A connection that fails in the login phase is removed. A
/// connection that fails later waits for its clean-up over another connection of the session; if there is no
/// other, the session fails too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionState {
    /// S2: the transport connection is being made.
    XptWait,
    /// S4: login requests and responses, nothing else.
    InLogin,
    /// S5: full feature phase.
    LoggedIn,
    /// S6: a logout request is in wire order; nothing is sent after it.
    InLogout,
    /// S8: the connection has failed, and its tasks wait until the target has ended them.
    CleanupWait,
}

impl ConnectionState {
    /// Returns whether the connection has a transport connection that may deliver bytes.
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::InLogin | Self::LoggedIn | Self::InLogout)
    }
}
