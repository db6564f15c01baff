//! What is seen of a running connection.

use std::time::Duration;

use crate::link::tcp_info::TcpInfo;

/// A stretch of a running connection.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// How long it was.
    pub elapsed: Duration,
    /// Payload bytes that moved, both directions.
    pub bytes: u64,
    /// The connection at its beginning.
    pub before: TcpInfo,
    /// The connection at its end.
    pub after: TcpInfo,
    /// What was waited for.
    pub activity: Activity,
}

/// How often, when one looked, the connection waited for what.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Activity {
    /// Bytes waited for the socket, or unsent in it.
    pub socket: u32,
    /// Data waited for the peer to ask for it.
    pub solicitation: u32,
    /// Commands waited for the command window.
    pub command_window: u32,
    /// All was sent and on its way, and answers were awaited.
    pub answers: u32,
    /// All had arrived, and answers were awaited.
    pub target: u32,
    /// Nothing was under way.
    pub source: u32,
}

impl Observation {
    /// What was seen of a connection over `elapsed`, in which it moved so many bytes of payload, both
    /// directions.
    #[must_use]
    pub const fn new(
        elapsed: Duration,
        bytes: u64,
        before: TcpInfo,
        after: TcpInfo,
        activity: Activity,
    ) -> Self {
        Self { elapsed, bytes, before, after, activity }
    }
}

impl Activity {
    /// What came since an earlier count.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            socket: self.socket.saturating_sub(earlier.socket),
            solicitation: self.solicitation.saturating_sub(earlier.solicitation),
            command_window: self.command_window.saturating_sub(earlier.command_window),
            answers: self.answers.saturating_sub(earlier.answers),
            target: self.target.saturating_sub(earlier.target),
            source: self.source.saturating_sub(earlier.source),
        }
    }

    /// How often one looked.
    #[must_use]
    pub const fn total(&self) -> u32 {
        let Self { socket, solicitation, command_window, answers, target, source } = *self;
        socket
            .saturating_add(solicitation)
            .saturating_add(command_window)
            .saturating_add(answers)
            .saturating_add(target)
            .saturating_add(source)
    }
}
