//! Defines the options of an initiator, which apply to every session unless the URL sets another value.

pub(crate) mod advanced;
pub(crate) mod back_off;
pub(crate) mod hedge;
pub(crate) mod policy;
mod range;
pub(crate) mod redirects;
pub(crate) mod retry_timeout;
pub(crate) mod sessions;
pub(crate) mod socket;

use std::sync::Arc;
use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_session::{Chap, SessionKind, Timeouts};
use iscsi_tuner::Tuning;

use crate::options::advanced::Advanced;
use crate::options::policy::RequestPolicy;
use crate::options::range::MAX_TIME;
use crate::options::redirects::Redirects;
use crate::options::retry_timeout::OnRetryTimeout;
use crate::options::sessions::Sessions;
use crate::traffic_class::TrafficClass;
use crate::transport::{Network, Tls};

/// Options of every session of an [`Initiator`](crate::Initiator), unless the URL sets another value. A value
/// outside of its range counts as the nearest end of the range.
///
/// ```
/// use std::time::Duration;
///
/// use iscsi_initiator::{Options, Sessions};
/// use iscsi_session::Timeouts;
///
/// let options = Options::default()
///     .with_sessions(Sessions::Fixed(4))
///     .with_retry_timeout(Duration::from_secs(60))
///     .with_timeouts(Timeouts::default().with_command(Some(Duration::from_secs(20))))
///     .with_max_bytes_in_flight(16 << 20);
/// # drop(options);
/// ```
#[doc(alias("configuration", "settings"))]
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) timeouts: Timeouts,
    pub(crate) use_environment: bool,
    pub(crate) trust: Trust,
    pub(crate) tuning: Tuning,
    pub(crate) connections: u16,
    pub(crate) sessions: Sessions,
    pub(crate) waits: Waits,
    pub(crate) in_flight: InFlight,
    pub(crate) class: Option<TrafficClass>,
    pub(crate) reservation_key: ReservationKey,
    pub(crate) network: Option<Arc<dyn Network>>,
    pub(crate) advanced: Advanced,
}

/// How peers are authenticated, how connections are encrypted, and which redirections are followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Credentials for URLs that have none.
    pub(crate) chap: Option<Chap>,
    pub(crate) redirects: Redirects,
    /// Encrypts the connections of URLs that ask for it.
    pub(crate) tls: Option<Arc<dyn Tls>>,
}

/// Time limits of requests and disks that wait for a target, and the interval of idle polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) retry_timeout: Duration,
    pub(crate) on_retry_timeout: OnRetryTimeout,
    pub(crate) open_timeout: Duration,
    pub(crate) poll: Option<Duration>,
}

/// Limits of what may be in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
    /// Maximum number of bytes of one command of a disk.
    pub(crate) transfer: usize,
}

impl Default for Options {
    /// Returns options that suit long links: [`Offer::default`](iscsi_session::Offer::default), one
    /// connection, 1024 requests with 64 MiB in flight, commands of up to 1 MiB, and five minutes for retry
    /// and reconnect. Opening a disk does not wait for a target that is not available.
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            use_environment: true,
            trust: Trust::default(),
            tuning: Tuning::default(),
            connections: 1,
            sessions: Sessions::default(),
            waits: Waits {
                retry_timeout: Duration::from_secs(300),
                on_retry_timeout: OnRetryTimeout::default(),
                open_timeout: Duration::ZERO,
                poll: None,
            },
            in_flight: InFlight { requests: 1024, bytes: 64 << 20, transfer: 1 << 20 },
            class: None,
            reservation_key: ReservationKey::NONE,
            network: None,
            advanced: Advanced::default(),
        }
    }
}

impl Options {
    /// Sets the time limits of sessions and commands.
    #[must_use]
    pub const fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the CHAP credentials for URLs that have none.
    #[doc(alias("password", "authentication"))]
    #[must_use]
    pub fn with_chap(mut self, chap: Option<Chap>) -> Self {
        self.trust.chap = chap;
        self
    }

    /// Sets whether libiscsi's environment variables are used; they are by default. For the variables with
    /// credentials, see [`Url::with_environment`](crate::Url::with_environment). The variables for sockets
    /// are `LIBISCSI_TCP_KEEPIDLE` and `LIBISCSI_TCP_KEEPINTVL` (seconds), `LIBISCSI_TCP_KEEPCNT`,
    /// `LIBISCSI_TCP_USER_TIMEOUT` (milliseconds) and `LIBISCSI_BIND_INTERFACES` (names separated by commas).
    /// A value that is not a number counts as not set.
    #[must_use]
    pub const fn with_use_environment(mut self, use_environment: bool) -> Self {
        self.use_environment = use_environment;
        self
    }

    /// Sets which redirections of a login are followed. The URL may set another value (`redirects`).
    #[must_use]
    pub const fn with_redirects(mut self, redirects: Redirects) -> Self {
        self.trust.redirects = redirects;
        self
    }

    /// Sets what the tuner may do to sockets, and the declared rate of the link.
    #[must_use]
    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Sets the number of connections to open in a session, 1 to 16, 1 by default. `MaxConnections` is
    /// proposed accordingly (MC/S, RFC 7143 §4.2.2, §13.2). If fewer connections are possible, the session
    /// continues, and [`Session::connections`](crate::Session::connections) reports why.
    #[doc(alias = "MC/S")]
    #[must_use]
    pub const fn with_connections(mut self, connections: u16) -> Self {
        self.connections = connections;
        self
    }

    /// Sets the number of sessions of a [`Disk`](crate::Disk) that is opened by its URL
    /// ([`Initiator::disk`](crate::Initiator::disk)).
    #[doc(alias("multipath", "paths"))]
    #[must_use]
    pub const fn with_sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = sessions;
        self
    }

    /// Sets the time limit of a [`Disk`](crate::Disk) for errors that may pass by themselves, 5 minutes by
    /// default. Such errors are a unit that cannot take a request now, and a lost session that cannot be
    /// reconnected yet. A login that the target refuses is also such an error, because a target that restarts
    /// listens before its access list and its units are ready. While the disk waits, requests are held, and
    /// [`Disk::status`](crate::Disk::status) reports the reason.
    ///
    /// If the time limit is shorter than the target's Time2Wait, lost sessions are not reconnected. With
    /// zero, the disk does not wait at all. The URL may set another value (`retry_timeout`). For opening a
    /// disk, see [`with_open_timeout`](Self::with_open_timeout).
    #[doc(alias(
        "reconnect",
        "retry",
        "timeout",
        "patience",
        "no_path_retry",
        "replacement_timeout"
    ))]
    #[must_use]
    pub const fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.waits.retry_timeout = retry_timeout;
        self
    }

    /// Sets what a [`Disk`](crate::Disk) does when its last session could not be reconnected within
    /// [`retry_timeout`](Self::with_retry_timeout).
    #[doc(alias = "queue_if_no_path")]
    #[must_use]
    pub const fn with_on_retry_timeout(mut self, on_retry_timeout: OnRetryTimeout) -> Self {
        self.waits.on_retry_timeout = on_retry_timeout;
        self
    }

    /// Sets the time limit within which [`Initiator::disk`](crate::Initiator::disk),
    /// [`Initiator::connect`](crate::Initiator::connect) and
    /// [`Initiator::discover`](crate::Initiator::discover) retry while the target may still become available:
    /// no process listens, the host name is not known, the target refuses the login for now, or the unit does
    /// not exist or is not ready. Errors that do not pass by themselves are returned immediately. If the
    /// password is refused, the login is tried seven times at most. Zero, the default, tries once. The URL
    /// may set another value (`open_timeout`).
    #[doc(alias("retry", "timeout", "wait"))]
    #[must_use]
    pub const fn with_open_timeout(mut self, open_timeout: Duration) -> Self {
        self.waits.open_timeout = open_timeout;
        self
    }

    /// Sets the interval at which an idle [`Disk`](crate::Disk) polls its unit for changes, 1 second to 1
    /// day. `None`, the default, and zero mean never. The URL may set another value (`poll`).
    ///
    /// A unit reports only at the next command that it has another size, was reset, or has lost a
    /// registration (SAM-5 §5.14). So without polls, [`Disk::events`](crate::Disk::events) and
    /// [`Disk::capacity`](crate::Disk::capacity) of an idle disk show no change of the unit. The disk sends
    /// one TEST UNIT READY over one session when it has sent no command for one to two intervals. A poll does
    /// not count as a request. A disk from
    /// [`Session::disk_without_reconnect`](crate::Session::disk_without_reconnect) never polls.
    #[doc(alias("keepalive", "path checker"))]
    #[must_use]
    pub const fn with_poll(mut self, interval: Option<Duration>) -> Self {
        self.waits.poll = interval;
        self
    }

    /// Sets the maximum number of commands in flight of a session, or of a disk with all its sessions, 1 to
    /// 2000, 1024 by default. Further commands wait. Task management and pings do not count.
    #[doc(alias("queue depth", "concurrency"))]
    #[must_use]
    pub const fn with_max_requests(mut self, max_requests: usize) -> Self {
        self.in_flight.requests = max_requests;
        self
    }

    /// Sets the maximum total size of the buffers of requests in flight, in bytes, 64 MiB by default. Further
    /// requests wait. A request that exceeds the limit runs alone.
    #[doc(alias = "memory")]
    #[must_use]
    pub const fn with_max_bytes_in_flight(mut self, max_bytes_in_flight: usize) -> Self {
        self.in_flight.bytes = max_bytes_in_flight;
        self
    }

    /// Sets the maximum number of bytes that a [`Disk`](crate::Disk) moves in one command, at least one
    /// block, 1 MiB by default. Longer requests are split. The limit that the unit reports (VPD page B0)
    /// applies as well.
    #[must_use]
    pub const fn with_max_transfer(mut self, max_transfer: usize) -> Self {
        self.in_flight.transfer = max_transfer;
        self
    }

    /// Sets the class that limits the rate at which a [`Disk`](crate::Disk) reads and writes, over all its
    /// sessions; usually a class of a [`Shaper`](crate::Shaper). `None`, the default, sets no limit. Each request
    /// is split into parts that take at most 50 ms at the highest rate of the class, but not into parts below
    /// 4 KiB. Connections send at most a little faster than that rate (`SO_MAX_PACING_RATE`). Requests
    /// made directly to a session or a logical unit are not limited.
    #[doc(alias("rate limit", "throttle", "bandwidth"))]
    #[must_use]
    pub fn with_class(mut self, class: Option<TrafficClass>) -> Self {
        self.class = class;
        self
    }

    /// Sets the reservation key. Each session of a [`Disk`](crate::Disk) is registered with the unit by this
    /// key before data is written over the session (persistent reservations, SPC-4 §5.13).
    /// [`NONE`](ReservationKey::NONE), the default, registers no session. The URL may set another value
    /// (`reservation_key`).
    ///
    /// If another host ends the registration, to fence this host off, all requests of the disk fail with
    /// [`Preempted`](crate::ErrorKind::Preempted), and no session is registered again. To continue, open the
    /// disk again. A disk that is logged out, or whose last handle is dropped, ends the registrations of the
    /// sessions that it has then. The registration of a lost session stays at the unit.
    ///
    /// Registrations survive a power failure of the unit if the unit supports that. Otherwise a power failure
    /// removes the key. Each host or process that must be fenced off separately needs a different key.
    #[doc(alias = "fencing")]
    #[must_use]
    pub const fn with_reservation_key(mut self, reservation_key: ReservationKey) -> Self {
        self.reservation_key = reservation_key;
        self
    }

    /// Sets the implementation of TLS for URLs that ask for it (`iscsis://`), such as that of the crate `iscsi-tls`. Without it
    /// such a URL is an error.
    #[doc(alias("encryption", "certificate"))]
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<dyn Tls>) -> Self {
        self.trust.tls = Some(tls);
        self
    }

    /// Sets the network over which connections are opened, in place of the TCP of the kernel. Of
    /// [`Advanced::with_sockets`], only the time limit to connect applies to it.
    #[doc(alias("transport", "tunnel", "proxy", "vsock"))]
    #[must_use]
    pub fn with_network(mut self, network: Arc<dyn Network>) -> Self {
        self.network = Some(network);
        self
    }

    /// Sets options that few programs need.
    #[must_use]
    pub fn with_advanced(mut self, advanced: Advanced) -> Self {
        self.advanced = advanced;
        self
    }

    /// Returns the time limit of a disk for errors that may pass by themselves: see
    /// [`with_retry_timeout`](Self::with_retry_timeout).
    #[must_use]
    pub const fn retry_timeout(&self) -> Duration {
        self.waits.retry_timeout
    }

    /// Returns the time limit to open a disk, a session or a discovery: see
    /// [`with_open_timeout`](Self::with_open_timeout).
    #[must_use]
    pub const fn open_timeout(&self) -> Duration {
        self.waits.open_timeout
    }

    /// Returns the total size of the buffers of requests in flight, in bytes.
    #[must_use]
    pub const fn max_bytes_in_flight(&self) -> usize {
        self.in_flight.bytes
    }

    /// Maximum number of connections of a session. More connections would take bandwidth from other hosts on
    /// the link.
    const MAX_CONNECTIONS: u16 = 16;
    /// Number of concurrent task management functions, pings and text exchanges of a session; further ones
    /// wait.
    pub(crate) const MAX_SESSION_REQUESTS: usize = 16;
    /// Maximum number of requests. With more requests, the session's 4096 tags would not suffice for an abort
    /// of each.
    const MAX_REQUESTS: usize = 2000;
    /// Minimum interval between two polls of an idle disk's unit.
    const MIN_POLL: Duration = Duration::from_secs(1);

    /// Returns `connections` within its range. A discovery session always has one connection (RFC 7143
    /// §13.2).
    pub(crate) fn connections_of(&self, kind: &SessionKind) -> u16 {
        match kind {
            SessionKind::Normal { .. } => self.connections.clamp(1, Self::MAX_CONNECTIONS),
            SessionKind::Discovery => 1,
        }
    }

    /// Returns `max_requests` within its range.
    pub(crate) fn requests(&self) -> usize {
        self.in_flight.requests.clamp(1, Self::MAX_REQUESTS)
    }

    /// Returns `poll` within its range. A value of the URL, in seconds, takes precedence.
    pub(crate) fn poll_interval(&self, of_url: Option<u32>) -> Option<Duration> {
        let of_url = of_url.map(|seconds| Duration::from_secs(seconds.into()));
        let interval = of_url.or(self.waits.poll).filter(|interval| !interval.is_zero());
        interval.map(|interval| interval.clamp(Self::MIN_POLL, MAX_TIME))
    }

    /// Returns the rules for requests that fail or are late. `retry_timeout` of the URL takes precedence.
    pub(crate) fn policy(&self, retry_timeout: Option<Duration>) -> RequestPolicy {
        let reservation_key = Some(self.reservation_key).filter(|key| !key.is_none());
        RequestPolicy {
            patience: retry_timeout.unwrap_or(self.waits.retry_timeout),
            retry: self.advanced.retry_pauses,
            hedge: self.advanced.hedge.in_range(),
            reservation_key,
            class: self.class.clone(),
        }
    }

    /// Returns the number of tags of a session. There is a tag for each request, a tag for the abort of each
    /// request, and tags for requests of the session itself and for what the session sends by itself. So a
    /// request that holds a permit is never refused.
    pub(crate) fn tasks(&self) -> usize {
        2 * self.requests() + Self::MAX_SESSION_REQUESTS + 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::back_off::BackOff;
    use crate::options::hedge::HedgeOptions;
    use crate::options::socket::SocketOptions;

    const EVER: Duration = Duration::MAX;

    #[test]
    fn what_is_out_of_range_counts_as_the_end_of_the_range() {
        let tick = Duration::from_millis(1);
        let sockets = SocketOptions::default().with_connect_timeout(EVER);
        let advanced = Advanced::default().with_sockets(sockets).with_portal_head_start(EVER);
        assert_eq!((advanced.sockets.connect_limit(), advanced.head_start()), (MAX_TIME, MAX_TIME));

        let poll = |poll, of_url| Options::default().with_poll(poll).poll_interval(of_url);
        let second = Duration::from_secs(1);
        assert_eq!((poll(None, None), poll(Some(Duration::ZERO), None)), (None, None));
        assert_eq!(
            (poll(Some(tick), None), poll(Some(EVER), None)),
            (Some(second), Some(MAX_TIME))
        );
        assert_eq!((poll(Some(EVER), Some(0)), poll(None, Some(7))), (None, Some(7 * second)));
    }

    #[test]
    fn defaults_are_in_range_and_reach_the_policy() {
        let policy = Options::default().policy(None);
        assert_eq!(policy.patience, Duration::from_secs(300));
        assert_eq!(policy.hedge, HedgeOptions::default());
        let second = Duration::from_secs(1);
        assert_eq!(policy.retry, BackOff::new(second / 100, second));
        let advanced = Advanced::default()
            .with_retry_pauses(BackOff::new(second, second))
            .with_hedge(HedgeOptions::default().with_min_stuck(5 * second));
        let options = Options::default().with_retry_timeout(7 * second).with_advanced(advanced);
        let policy = options.policy(None);
        assert_eq!(policy.patience, 7 * second);
        assert_eq!((policy.retry.first_pause, policy.hedge.min_stuck), (second, 5 * second));
        assert_eq!(options.policy(Some(9 * second)).patience, 9 * second);
    }
}
