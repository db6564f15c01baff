//! The timers of a session.

use std::fmt;

/// The timers of a session, for which the caller calls `handle_timeout`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Timer {
    /// Time limit of a connection's establishment and login together.
    Login,
    /// Time limit of the status of a command.
    Command,
    /// Time limit of the response to a task management request.
    TaskManagement,
    /// Time without a byte in either direction after which the session sends a NOP-Out.
    NopInterval,
    /// Time limit after a NOP-Out of the session; it starts again with each byte that moves on the connection.
    NopResponse,
    /// Time limit of the response to a logout request.
    Logout,
    /// Time limit of a missing StatSN, if later ones have arrived.
    StatSn,
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Login => "login",
            Self::Command => "command",
            Self::TaskManagement => "task management",
            Self::NopInterval => "NOP-Out interval",
            Self::NopResponse => "NOP-In",
            Self::Logout => "logout",
            Self::StatSn => "missing StatSN",
        })
    }
}
