//! What an initiator asks of every session, unless its URL says otherwise.

pub(crate) mod sessions;
pub(crate) mod socket;

use std::time::Duration;

use iscsi_session::{Chap, Offer, SessionKind, Timeouts};
use iscsi_tuner::Tuning;

use crate::options::sessions::Sessions;
use crate::options::socket::SocketOptions;

/// What an [`Initiator`](crate::Initiator) asks of every session, unless the URL says otherwise.
///
/// ```
/// use iscsi_initiator::Options;
///
/// let mut options = Options::default();
/// options.offer.max_outstanding_r2t = 64;
/// options.max_bytes_in_flight = 16 << 20;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The operational parameters to propose (RFC 7143 §13).
    pub offer: Offer,
    /// Time limits of sessions and commands.
    pub timeouts: Timeouts,
    /// CHAP credentials for URLs that have none.
    pub chap: Option<Chap>,
    /// Whether libiscsi's variables count: for a URL without credentials, see
    /// [`Url::with_environment`](crate::Url::with_environment), and for sockets, see
    /// [`SocketOptions::with_environment`].
    pub use_environment: bool,
    /// The random part of the ISIDs (RFC 7143 §11.12.5). Fixed, the sessions of an initiator have
    /// the same identity after a restart, which persistent reservations need; but two processes
    /// with one name and one value end each other's sessions. `None` draws it.
    pub isid: Option<[u8; 3]>,
    /// Signs of life, and the interface to use.
    pub socket: SocketOptions,
    /// What the tuner shall do with the socket, and the declared rate of the link.
    pub tuning: Tuning,
    /// How many connections a session shall have, 1 to 16; `MaxConnections` is proposed accordingly
    /// (MC/S, RFC 7143 §4.2.2, §13.2). With fewer the session goes on, and
    /// [`Session::connections`](crate::Session::connections) says why.
    pub connections: u16,
    /// How long a TCP connection may take to come about, over all addresses of the portal. The
    /// time limit of the login counts as well.
    pub connect_timeout: Duration,
    /// How many sessions a [`Disk`](crate::Disk) that is opened by its URL
    /// ([`Initiator::disk`](crate::Initiator::disk)) shall have.
    pub sessions: Sessions,
    /// How long a [`Disk`](crate::Disk) puts up with what may pass by itself: with a unit that does
    /// not take a request now, and with a lost session that cannot be opened anew yet. Opening the disk
    /// is not covered: that fails as soon as its questions do. The URL may say otherwise.
    /// [`Disk::spread`](crate::Disk::spread) tells meanwhile what it waits for. With less than the
    /// target's Time2Wait lost sessions are not opened anew; zero waits for nothing.
    pub patience: Duration,
    /// How many requests a session, or a disk with all its sessions, may have under way, 1 to 2000;
    /// more wait for their turn.
    pub max_requests: usize,
    /// How many bytes the buffers of these requests may have in sum, up to 2^32-1; more wait for
    /// their turn. One request that exceeds the limit runs alone.
    pub max_bytes_in_flight: usize,
    /// The most bytes a [`Disk`](crate::Disk) moves in one command; longer requests are split.
    /// The unit's own limit (VPD page B0) counts as well.
    pub max_transfer: usize,
}

impl Default for Options {
    /// For long links: see [`Offer::default`]; one connection, 1024 requests with 64 MiB, in pieces of 1 MiB,
    /// and five minutes of patience.
    fn default() -> Self {
        Self {
            offer: Offer::default(),
            timeouts: Timeouts::default(),
            chap: None,
            use_environment: true,
            isid: None,
            socket: SocketOptions::default(),
            tuning: Tuning::default(),
            connections: 1,
            connect_timeout: Duration::from_secs(10),
            sessions: Sessions::default(),
            patience: Duration::from_secs(300),
            max_requests: 1024,
            max_bytes_in_flight: 64 << 20,
            max_transfer: 1 << 20,
        }
    }
}

impl Options {
    /// More crowd out others on the link.
    const MAX_CONNECTIONS: u16 = 16;
    /// More requests than this, and an abort for each would not fit the session's 4096 tags.
    const MAX_REQUESTS: usize = 2000;

    /// `connections` within its range; discovery has no use for several (RFC 7143 §13.2).
    pub(crate) fn connections_of(&self, kind: &SessionKind) -> u16 {
        match kind {
            SessionKind::Normal { .. } => self.connections.clamp(1, Self::MAX_CONNECTIONS),
            SessionKind::Discovery => 1,
        }
    }

    /// `max_requests` within its range.
    pub(crate) fn requests(&self) -> usize {
        self.max_requests.clamp(1, Self::MAX_REQUESTS)
    }

    /// Room for every request, an abort for each of them, and what the session asks by itself: so
    /// a request that holds a permit is never refused.
    pub(crate) fn tasks(&self) -> usize {
        2 * self.requests() + 16
    }
}
