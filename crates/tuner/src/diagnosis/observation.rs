//! Observations of a running connection.

use std::time::Duration;

use crate::link::tcp_info::TcpInfo;
use iscsi_rate::Rate;

/// Observation of a running connection over some time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// The length of the observation.
    pub elapsed: Duration,
    /// Payload bytes that moved, both directions.
    pub bytes: u64,
    /// The kernel's report at the beginning of the observation.
    pub before: TcpInfo,
    /// The kernel's report at its end.
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
    /// The ceiling of the rate of the requests' class, or the narrowest ceiling above that class.
    pub rate: Option<Rate>,
    /// Largest number of requests in flight.
    pub requests: Option<u32>,
    /// Largest number of bytes in the buffers of the requests in flight.
    pub bytes: Option<u64>,
}

/// Numbers of samples of a connection, by what it waited for at that moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Activity {
    /// Bytes waited for the socket, or lay unsent in it.
    pub socket: u32,
    /// Data waited for the peer to request it.
    pub solicitation: u32,
    /// Commands waited for the command window.
    pub command_window: u32,
    /// All was sent but had not all arrived, and answers were awaited.
    pub answers: u32,
    /// All had arrived at the peer, and answers were awaited.
    pub target: u32,
    /// Nothing was in flight.
    pub source: u32,
    /// Requests waited in their class, or the connection sent at the rate that the class permits.
    pub class: u32,
    /// Answers were awaited, and further requests waited for the user's limit of requests in flight.
    pub in_flight_limit: u32,
    /// Bytes of data still to arrive: the sum over all samples in which answers were awaited.
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

    /// Returns the number of samples in which answers were awaited, for any reason.
    pub(super) const fn awaiting_answers(&self) -> u32 {
        let Self { answers, target, in_flight_limit, .. } = *self;
        answers.saturating_add(target).saturating_add(in_flight_limit)
    }

    /// Returns the mean of the bytes still to arrive, over the samples in which answers were awaited.
    pub(super) fn mean_awaited_data(&self) -> Option<u64> {
        self.awaited_data.checked_div(self.awaiting_answers().into())
    }
}
