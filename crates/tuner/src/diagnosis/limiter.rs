//! Limiters of a flow.

use std::fmt;

/// The limit of a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Limiter {
    /// The link: its rate is reached.
    Link,
    /// The congestion window, which lost segments have reduced.
    Loss,
    /// The congestion window, which still grows or has reached its limit.
    CongestionWindow,
    /// The send buffer.
    SendBuffer,
    /// The window that the peer offers.
    PeerWindow,
    /// Write data, which waits until the peer requests it.
    Solicitation,
    /// The command window: the peer accepts no more commands.
    CommandWindow,
    /// The window that this end offers.
    ReceiveWindow,
    /// The queue depth: no more requests are in flight than it permits, and more would fill the link.
    QueueDepth,
    /// The target: all requests have arrived there, and it has not answered yet.
    Target,
    /// The user's rate: requests wait in their class, or the connection sends at the rate of the class.
    Class,
    /// The user's limit of requests in flight, or of their bytes: further requests wait for it.
    InFlightLimit,
    /// The source of writes: it delivers data more slowly than the link takes it.
    Source,
    /// The destination of reads: it takes data more slowly than the link delivers it.
    Destination,
}

impl Limiter {
    /// Returns the limiter's name, as readable text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "the link is full",
            Self::Loss => "loss",
            Self::CongestionWindow => "congestion window",
            Self::SendBuffer => "send buffer",
            Self::PeerWindow => "peer's window",
            Self::Solicitation => "R2T round trips",
            Self::CommandWindow => "command window",
            Self::ReceiveWindow => "receive window",
            Self::QueueDepth => "queue depth",
            Self::Target => "target",
            Self::Class => "rate limit",
            Self::InFlightLimit => "in-flight limit",
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
