//! Counts what a running connection waits for.

use std::time::Duration;

use crate::link::tcp_info::TcpInfo;
use iscsi_rate::Rate;

/// Observation of a running connection over some time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// The length of the observation.
    pub elapsed: Duration,
    /// Payload bytes that moved, in both directions together.
    pub bytes: u64,
    /// The kernel's report at the beginning of the observation.
    pub before: TcpInfo,
    /// The kernel's report at the end of the observation.
    pub after: TcpInfo,
    /// The activity of the connection during the observation.
    pub activity: Activity,
    /// The limits that the user has set.
    pub limits: OwnLimits,
}

/// The limits that the user sets for a connection; `None` where the user sets none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct OwnLimits {
    /// The rate limit of the requests' class, or of an ancestor of the class if that is lower.
    pub rate: Option<Rate>,
    /// Largest number of requests in flight.
    pub requests: Option<u32>,
    /// Largest number of bytes in the buffers of the requests in flight.
    pub bytes: Option<u64>,
}

/// Samples of a connection, counted by what the connection waited for at that moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Activity {
    /// Samples in which bytes waited for the socket, or lay unsent in it.
    pub socket: u32,
    /// Samples in which write data waited until the peer requested it.
    pub solicitation: u32,
    /// Samples in which commands waited for the command window.
    pub command_window: u32,
    /// Samples in which everything was sent but had not all arrived at the peer, while answers were awaited.
    pub answers: u32,
    /// Samples in which everything that was sent had arrived at the peer, while answers were awaited.
    pub target: u32,
    /// Samples in which nothing was in flight.
    pub source: u32,
    /// Samples in which requests waited in their class, or the connection sent at the rate that the class
    /// permits.
    pub class: u32,
    /// Samples in which answers were awaited, and further requests waited for the user's limit of requests in
    /// flight.
    pub in_flight_limit: u32,
    /// Sum, over the samples in which answers were awaited, of the bytes of data still to arrive.
    pub awaited_data: u64,
}

impl Observation {
    /// Creates the observation of a connection over `elapsed`, in which it moved `bytes` bytes of payload in
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
    /// Returns the samples that were counted after `earlier`.
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
