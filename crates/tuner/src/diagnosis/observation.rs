//! What is seen of a running connection.

use std::time::Duration;

use crate::link::tcp_info::TcpInfo;
use iscsi_rate::Rate;

/// A stretch of a running connection.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// The length of the observation.
    pub elapsed: Duration,
    /// Payload bytes that moved, both directions.
    pub bytes: u64,
    /// The connection at its beginning.
    pub before: TcpInfo,
    /// The connection at its end.
    pub after: TcpInfo,
    /// The activity of the connection during the observation.
    pub activity: Activity,
    /// The limits that the user has set.
    pub limits: OwnLimits,
}

/// The limits that the user sets for a connection; `None` where nothing limits it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct OwnLimits {
    /// The ceil of the class of its requests, or the narrowest above it.
    pub rate: Option<Rate>,
    /// Requests in flight.
    pub requests: Option<u32>,
    /// Bytes of their buffers.
    pub bytes: Option<u64>,
}

/// Counts of samples of a connection, by what it waited for at that moment.
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
    /// Nothing was in flight.
    pub source: u32,
    /// Requests waited in their class, or the connection sent as fast as the class permits.
    pub class: u32,
    /// Answers were awaited, and further requests waited for the user's limit of what may be in flight.
    pub in_flight_limit: u32,
    /// The data that were to come, bytes: the sum over all times at which answers were awaited.
    pub awaited_data: u64,
}

impl Observation {
    /// Creates the observation of a connection over `elapsed`, in which it moved `bytes` of payload,
    /// both directions together.
    #[must_use]
    pub const fn new(
        elapsed: Duration,
        bytes: u64,
        before: TcpInfo,
        after: TcpInfo,
        activity: Activity,
    ) -> Self {
        let limits = OwnLimits { rate: None, requests: None, bytes: None };
        Self { elapsed, bytes, before, after, activity, limits }
    }

    /// Sets the limits of the user.
    #[must_use]
    pub const fn within(self, limits: OwnLimits) -> Self {
        Self { limits, ..self }
    }
}

impl Activity {
    /// Returns the difference to an earlier count.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            socket: self.socket.saturating_sub(earlier.socket),
            solicitation: self.solicitation.saturating_sub(earlier.solicitation),
            command_window: self.command_window.saturating_sub(earlier.command_window),
            answers: self.answers.saturating_sub(earlier.answers),
            target: self.target.saturating_sub(earlier.target),
            source: self.source.saturating_sub(earlier.source),
            class: self.class.saturating_sub(earlier.class),
            in_flight_limit: self.in_flight_limit.saturating_sub(earlier.in_flight_limit),
            awaited_data: self.awaited_data.saturating_sub(earlier.awaited_data),
        }
    }

    /// Returns the number of samples.
    #[must_use]
    pub const fn total(&self) -> u32 {
        let Self { socket, solicitation, command_window, source, class, .. } = *self;
        socket
            .saturating_add(solicitation)
            .saturating_add(command_window)
            .saturating_add(self.awaiting_answers())
            .saturating_add(source)
            .saturating_add(class)
    }

    /// How often answers were awaited, for whichever reason.
    pub(super) const fn awaiting_answers(&self) -> u32 {
        let Self { answers, target, in_flight_limit, .. } = *self;
        answers.saturating_add(target).saturating_add(in_flight_limit)
    }

    /// The data that were to come while answers were awaited, bytes on average.
    pub(super) fn mean_awaited_data(&self) -> Option<u64> {
        self.awaited_data.checked_div(self.awaiting_answers().into())
    }
}
