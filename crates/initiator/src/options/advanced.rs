//! Defines options that few programs set.

use std::time::Duration;

use iscsi_multipath::reconnect::{JitteredBackOff, ReconnectLimits};
use iscsi_session::{Entropy, Offer};

use crate::options::back_off::BackOff;
use crate::options::hedge::HedgeOptions;
use crate::options::policy::RequestPolicy;
use crate::options::range::MAX_TIME;
use crate::options::socket::SocketOptions;

/// The share of each pause before a reconnect that is random, percent.
const JITTER: u8 = 50;

/// Options that few programs set: [`Options::with_advanced`](crate::Options::with_advanced).
///
/// ```
/// use std::time::Duration;
///
/// use iscsi_initiator::{Advanced, BackOff, Options};
///
/// let pauses = BackOff::new(Duration::from_millis(50), Duration::from_secs(2));
/// let options = Options::default().with_advanced(Advanced::default().with_retry_pauses(pauses));
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
pub struct Advanced {
    pub(crate) offer: Offer,
    pub(crate) isid: Option<[u8; 3]>,
    pub(crate) retry_pauses: BackOff,
    pub(crate) reconnect_pauses: BackOff,
    pub(crate) hedge: HedgeOptions,
    pub(crate) sockets: SocketOptions,
    pub(crate) portal_head_start: Duration,
}

impl Default for Advanced {
    fn default() -> Self {
        Self {
            offer: Offer::default(),
            isid: None,
            retry_pauses: BackOff::new(Duration::from_millis(10), Duration::from_secs(1)),
            reconnect_pauses: BackOff::new(Duration::from_secs(1), Duration::from_secs(5)),
            hedge: HedgeOptions::default(),
            sockets: SocketOptions::default(),
            portal_head_start: Duration::from_millis(250),
        }
    }
}

impl Advanced {
    /// Sets the operational parameters to propose at login (RFC 7143 §13). The options of the URL apply as
    /// well, such as `header_digest`.
    #[doc(alias("negotiation", "digest"))]
    #[must_use]
    pub const fn with_offer(mut self, offer: Offer) -> Self {
        self.offer = offer;
        self
    }

    /// Sets the random part of the ISIDs (RFC 7143 §11.12.5). With `None`, the default, it is chosen at
    /// random. With a fixed value, the sessions of an initiator keep their identity after a restart, which
    /// persistent reservations need. But two processes with the same name and the same value end each other's
    /// sessions.
    #[must_use]
    pub const fn with_isid(mut self, isid: Option<[u8; 3]>) -> Self {
        self.isid = isid;
        self
    }

    /// Sets the pauses between retries of a command that the unit cannot take now, 10 ms to 1 s by default.
    /// They also apply between reconnects of sessions that end soon after each other. The table in the [crate
    /// documentation](crate#what-is-retried) lists what is retried, and
    /// [`retry_timeout`](crate::Options::with_retry_timeout) limits for how long a [`Disk`](crate::Disk)
    /// retries.
    #[must_use]
    pub const fn with_retry_pauses(mut self, pauses: BackOff) -> Self {
        self.retry_pauses = pauses;
        self
    }

    /// Sets the pauses between attempts to reconnect a lost session of a [`Disk`](crate::Disk), 1 s to 5 s by
    /// default. They also apply between attempts to open a disk or a session within
    /// [`open_timeout`](crate::Options::with_open_timeout). Half of each pause is random, so that sessions
    /// which were lost together do not reconnect at the same time.
    ///
    /// The first attempt is made when the target's Time2Wait is over (RFC 7143 §7.4). Each attempt goes to
    /// the portal of the lost session, and then to all other portals of the URL until one leads to the unit.
    #[doc(alias("reconnect", "recovery", "backoff"))]
    #[must_use]
    pub const fn with_reconnect_pauses(mut self, pauses: BackOff) -> Self {
        self.reconnect_pauses = pauses;
        self
    }

    /// Sets when a late request is also sent over a second session.
    #[doc(alias("hedging", "failover"))]
    #[must_use]
    pub const fn with_hedge(mut self, hedge: HedgeOptions) -> Self {
        self.hedge = hedge;
        self
    }

    /// Sets keepalive and time limits of the TCP connections, and the network interfaces to use.
    #[doc(alias = "keepalive")]
    #[must_use]
    pub fn with_sockets(mut self, sockets: SocketOptions) -> Self {
        self.sockets = sockets;
        self
    }

    /// Sets the time that each portal in the URL of a [`Disk`](crate::Disk) has to answer before the next
    /// portal is tried as well, up to 1 day (RFC 8305 §5), 250 ms by default. The head start applies to each
    /// session, also when a session is reconnected. With zero, all portals are tried concurrently.
    #[doc(alias = "happy eyeballs")]
    #[must_use]
    pub const fn with_portal_head_start(mut self, head_start: Duration) -> Self {
        self.portal_head_start = head_start;
        self
    }

    /// Returns the pauses between the attempts to reconnect.
    pub(crate) const fn reconnect_back_off<E: Entropy>(&self, entropy: E) -> JitteredBackOff<E> {
        let BackOff { first_pause, max_pause } = self.reconnect_pauses;
        JitteredBackOff::new(entropy, first_pause, max_pause, JITTER)
    }

    /// Returns the limits of the attempts to reconnect a session whose requests have this policy.
    pub(crate) const fn reconnect_limits(&self, policy: &RequestPolicy) -> ReconnectLimits {
        let BackOff { first_pause, max_pause } = self.reconnect_pauses;
        ReconnectLimits {
            first_pause,
            max_pause,
            jitter: JITTER,
            retry_timeout: policy.patience,
            after_quick_ends: policy.retry.pauses(),
        }
    }

    /// Returns `portal_head_start` within its range.
    pub(crate) fn head_start(&self) -> Duration {
        self.portal_head_start.min(MAX_TIME)
    }
}
