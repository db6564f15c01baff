//! The timers of a session.

use std::fmt;

/// Reasons why the session wants to be called at a point in time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Timer {
    /// Connect and login of a connection together.
    Login,
    /// The status of a command.
    Command,
    /// The response to a task management request.
    TaskManagement,
    /// Silence: time to ask for a sign of life.
    NopInterval,
    /// A sign of life after a NOP-Out.
    NopResponse,
    /// The response to a logout request.
    Logout,
    /// A missing StatSN, before which later ones have come.
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
