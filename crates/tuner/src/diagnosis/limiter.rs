//! What may hold a flow back.

use std::fmt;

/// Things that may limit a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Limiter {
    /// Nothing: the link's rate is reached.
    Link,
    /// The congestion window, because segments are lost.
    Loss,
    /// The congestion window, which still grows or has found its limit.
    CongestionWindow,
    /// The send buffer.
    SendBuffer,
    /// The window that the peer offers.
    PeerWindow,
    /// Data waits until the peer asks for it.
    Solicitation,
    /// The peer takes no more commands.
    CommandWindow,
    /// The window that this end offers.
    ReceiveWindow,
    /// The queue depth: as much is in flight as the queue depth permits.
    QueueDepth,
    /// The peer has everything, and takes its time.
    Target,
    /// The user's rate: requests wait in their class, or the connection sends at the pace of the class.
    Class,
    /// The user's limit of requests in flight, or of their bytes: further ones wait for it.
    InFlightLimit,
    /// Nothing is to be written: the data to write come more slowly than the link takes them.
    Source,
    /// Nothing is to be read: the data that come are taken more slowly than the link brings them.
    Destination,
}

impl Limiter {
    /// Its name, for people.
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
