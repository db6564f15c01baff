//! What an initiator asks of every session, unless its URL says otherwise.

pub(crate) mod lateness;
pub(crate) mod policy;
mod range;
pub(crate) mod redirects;
pub(crate) mod reopening;
pub(crate) mod retry;
pub(crate) mod sessions;
mod setters;
pub(crate) mod socket;

use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_session::{Chap, Offer, SessionKind, Timeouts};
use iscsi_tuner::Tuning;

use crate::options::lateness::LatenessOptions;
use crate::options::policy::RequestPolicy;
use crate::options::range::MAX_TIME;
use crate::options::redirects::Redirects;
use crate::options::reopening::ReopeningOptions;
use crate::options::retry::RetryOptions;
use crate::options::sessions::Sessions;
use crate::options::setters::setters;
use crate::options::socket::SocketOptions;
use crate::traffic_class::TrafficClass;

/// Options of every session of an [`Initiator`](crate::Initiator), unless the URL says otherwise. A
/// value outside of its range counts as the nearest end of the range.
///
/// ```
/// use std::time::Duration;
///
/// use iscsi_initiator::{Options, RetryOptions, Sessions};
///
/// let mut options = Options::default()
///     .with_sessions(Sessions::Fixed(4))
///     .with_patience(Duration::from_secs(60))
///     .with_retry(RetryOptions::default().with_first_pause(Duration::from_millis(50)))
///     .with_max_bytes_in_flight(16 << 20);
/// options.offer.max_outstanding_r2t = 64;
/// ```
#[doc(alias("configuration", "settings"))]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Operational parameters to propose at login (RFC 7143 §13).
    #[doc(alias = "negotiation")]
    pub offer: Offer,
    /// Time limits of sessions and commands.
    pub timeouts: Timeouts,
    /// CHAP credentials for URLs that have none.
    #[doc(alias("password", "authentication"))]
    pub chap: Option<Chap>,
    /// Whether libiscsi's environment variables are used: see
    /// [`Url::with_environment`](crate::Url::with_environment) for a URL without credentials, and
    /// [`SocketOptions::with_environment`] for sockets.
    pub use_environment: bool,
    /// Which redirections of a login are followed. The URL may say otherwise (`redirects`).
    pub redirects: Redirects,
    /// The random part of the ISIDs (RFC 7143 §11.12.5). `None` draws it. With a fixed value, the
    /// sessions of an initiator keep their identity after a restart, which persistent reservations
    /// need. But two processes with one name and one value end each other's sessions.
    pub isid: Option<[u8; 3]>,
    /// Keepalive of the connections, and the network interface to use.
    pub socket: SocketOptions,
    /// Permissions of the tuner for sockets, and the declared rate of the link.
    pub tuning: Tuning,
    /// Number of connections to open in a session, 1 to 16; `MaxConnections` is proposed
    /// accordingly (MC/S, RFC 7143 §4.2.2, §13.2). A session with fewer continues, and
    /// [`Session::connections`](crate::Session::connections) reports why.
    #[doc(alias = "MC/S")]
    pub connections: u16,
    /// Time limit to make a TCP connection, over all addresses of the portal, up to 1 day. The time
    /// limit of the login applies as well.
    #[doc(alias = "timeout")]
    pub connect_timeout: Duration,
    /// Number of sessions of a [`Disk`](crate::Disk) that is opened by its URL
    /// ([`Initiator::disk`](crate::Initiator::disk)).
    #[doc(alias("multipath", "paths"))]
    pub sessions: Sessions,
    /// Time limit of a [`Disk`](crate::Disk) for errors that may pass by themselves: a unit that cannot take
    /// a request now, or a lost session that cannot be reconnected yet. A login that the target
    /// refuses counts as such, because a target that restarts listens before its access list and
    /// its units are back. While it waits, requests are held, and
    /// [`Disk::spread`](crate::Disk::spread) reports the reason.
    ///
    /// With less than the target's Time2Wait, lost sessions are not reconnected; zero waits for
    /// nothing. The URL may say otherwise (`patience`). For opening a disk, see
    /// [`open_patience`](Self::open_patience).
    #[doc(alias("reconnect", "retry", "timeout", "no_path_retry", "replacement_timeout"))]
    pub patience: Duration,
    /// Time limit within which [`Initiator::disk`](crate::Initiator::disk),
    /// [`Initiator::connect`](crate::Initiator::connect) and
    /// [`Initiator::discover`](crate::Initiator::discover) retry while the target may still appear:
    /// nothing listens, its name is not known, it refuses the login for now, or the unit is not
    /// there or not ready. An error that waiting does not change is returned immediately; a
    /// password that is refused is tried seven times at most. Zero tries once. The URL may say
    /// otherwise (`open_patience`).
    #[doc(alias("retry", "timeout", "wait"))]
    pub open_patience: Duration,
    /// Interval at which an idle [`Disk`](crate::Disk) asks its unit for changes, 1 second to 1 day.
    /// `None`, the default, and zero mean never. The URL may say otherwise (`poll`).
    ///
    /// A unit reports only at the next command that it has another size, was reset, or has lost a
    /// registration (SAM-5 §5.14). So without this, [`Disk::changes`](crate::Disk::changes) and
    /// [`Disk::capacity`](crate::Disk::capacity) of an idle disk show nothing new. The disk sends
    /// one TEST UNIT READY over one session when it has sent no command for one to two intervals.
    /// It does not count as a request. A disk from [`Session::disk`](crate::Session::disk) never
    /// asks.
    #[doc(alias("keepalive", "path checker"))]
    pub poll: Option<Duration>,
    /// Retry of commands that the unit cannot take now: pauses and number of attempts.
    pub retry: RetryOptions,
    /// Reconnect of the lost sessions of a [`Disk`](crate::Disk): pauses and number of attempts.
    #[doc(alias = "reconnect")]
    pub reopening: ReopeningOptions,
    /// Conditions under which a request is sent over a second session as well.
    #[doc(alias("hedging", "failover"))]
    pub lateness: LatenessOptions,
    /// Time that each portal in the URL of a [`Disk`](crate::Disk) has to answer before the next one
    /// is tried as well, up to 1 day (RFC 8305 §5). It applies to each session, also when one is
    /// reconnected. With zero all portals are tried concurrently.
    #[doc(alias = "happy eyeballs")]
    pub portal_head_start: Duration,
    /// Number of commands that a session, or a disk with all its sessions, may have in flight, 1 to
    /// 2000; further ones wait. Task management and pings do not count.
    #[doc(alias("queue depth", "concurrency"))]
    pub max_requests: usize,
    /// Total size of the buffers of these requests, in bytes; further requests wait. One request
    /// that exceeds the limit runs alone.
    #[doc(alias = "memory")]
    pub max_bytes_in_flight: usize,
    /// The most bytes that a [`Disk`](crate::Disk) moves in one command, at least one block; longer
    /// requests are split. The limit that the unit reports (VPD page B0) applies as well.
    pub max_transfer: usize,
    /// Class that limits the rate at which a [`Disk`](crate::Disk) reads and writes, over all its
    /// sessions; usually one of a [`Shaper`](crate::Shaper). `None` sets no limit. Each request is
    /// split so that it takes at most 50 ms at the highest rate of the class, but not below 4 KiB,
    /// and connections send at most a little faster than that rate (`SO_MAX_PACING_RATE`). Requests
    /// made directly to a session or a logical unit are not limited.
    #[doc(alias("rate limit", "throttle", "bandwidth"))]
    pub class: Option<TrafficClass>,
    /// Key that registers each session of a [`Disk`](crate::Disk) with the unit before anything is
    /// written over it (persistent reservations, SPC-4 §5.13); [`NONE`](ReservationKey::NONE)
    /// registers none. The URL may say otherwise (`reservation_key`).
    ///
    /// If another host ends the registration, to fence this host off, all requests of the disk fail
    /// with [`Error::Preempted`](crate::Error::Preempted), and no session is registered again: to
    /// go on, open the disk again. A disk that is logged out, or whose last handle is dropped, ends
    /// the registrations of the sessions that it has then. The registration of a lost session stays
    /// with the unit.
    ///
    /// Registrations survive a power failure of the unit if the unit supports that; otherwise it
    /// has then lost the key. Each host or process that must be fenced off separately needs a
    /// different key.
    #[doc(alias = "fencing")]
    pub reservation_key: ReservationKey,
}

impl Default for Options {
    /// Suits long links: see [`Offer::default`]; one connection, 1024 requests with 64 MiB in
    /// flight, commands of up to 1 MiB, a patience of five minutes, and no wait for a target that
    /// is not there when a disk is opened.
    fn default() -> Self {
        Self {
            offer: Offer::default(),
            timeouts: Timeouts::default(),
            chap: None,
            use_environment: true,
            redirects: Redirects::default(),
            isid: None,
            socket: SocketOptions::default(),
            tuning: Tuning::default(),
            connections: 1,
            connect_timeout: Duration::from_secs(10),
            sessions: Sessions::default(),
            patience: Duration::from_secs(300),
            open_patience: Duration::ZERO,
            poll: None,
            retry: RetryOptions::default(),
            reopening: ReopeningOptions::default(),
            lateness: LatenessOptions::default(),
            portal_head_start: Duration::from_millis(250),
            max_requests: 1024,
            max_bytes_in_flight: 64 << 20,
            max_transfer: 1 << 20,
            class: None,
            reservation_key: ReservationKey::NONE,
        }
    }
}

impl Options {
    setters! {
        with_offer(offer: Offer),
        with_timeouts(timeouts: Timeouts),
        with_chap(chap: Option<Chap>),
        with_use_environment(use_environment: bool),
        with_redirects(redirects: Redirects),
        with_isid(isid: Option<[u8; 3]>),
        with_socket(socket: SocketOptions),
        with_tuning(tuning: Tuning),
        with_connections(connections: u16),
        with_connect_timeout(connect_timeout: Duration),
        with_sessions(sessions: Sessions),
        with_patience(patience: Duration),
        with_open_patience(open_patience: Duration),
        with_poll(poll: Option<Duration>),
        with_retry(retry: RetryOptions),
        with_reopening(reopening: ReopeningOptions),
        with_lateness(lateness: LatenessOptions),
        with_portal_head_start(portal_head_start: Duration),
        with_max_requests(max_requests: usize),
        with_max_bytes_in_flight(max_bytes_in_flight: usize),
        with_max_transfer(max_transfer: usize),
        with_class(class: Option<TrafficClass>),
        with_reservation_key(reservation_key: ReservationKey),
    }

    /// More crowd out others on the link.
    const MAX_CONNECTIONS: u16 = 16;
    /// Number of concurrent task management functions, pings and text exchanges of a session; further ones wait.
    pub(crate) const MAX_SESSION_REQUESTS: usize = 16;
    /// More requests than this, and an abort for each would not fit the session's 4096 tags.
    const MAX_REQUESTS: usize = 2000;
    /// Time between two questions to the unit of an idle disk, at least.
    const MIN_POLL: Duration = Duration::from_secs(1);

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

    /// `connect_timeout` within its range.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout.min(MAX_TIME)
    }

    /// `portal_head_start` within its range.
    pub(crate) fn head_start(&self) -> Duration {
        self.portal_head_start.min(MAX_TIME)
    }

    /// `poll` within its range, where the URL may say otherwise, in seconds.
    pub(crate) fn poll_interval(&self, of_url: Option<u32>) -> Option<Duration> {
        let of_url = of_url.map(|seconds| Duration::from_secs(seconds.into()));
        let interval = of_url.or(self.poll).filter(|interval| !interval.is_zero());
        interval.map(|interval| interval.clamp(Self::MIN_POLL, MAX_TIME))
    }

    /// What is done about requests that end badly or are late, where the URL may say otherwise.
    pub(crate) fn policy(&self, patience: Option<Duration>) -> RequestPolicy {
        let reservation_key = Some(self.reservation_key).filter(|key| !key.is_none());
        RequestPolicy {
            patience: patience.unwrap_or(self.patience),
            retry: self.retry.in_range(),
            lateness: self.lateness.in_range(),
            reservation_key,
            class: self.class.clone(),
        }
    }

    /// Room for every request, an abort for each of them, what is asked of the session itself, and what
    /// it asks by itself: so a request that holds a permit is never refused.
    pub(crate) fn tasks(&self) -> usize {
        2 * self.requests() + Self::MAX_SESSION_REQUESTS + 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVER: Duration = Duration::MAX;

    #[test]
    fn what_is_out_of_range_counts_as_the_end_of_the_range() {
        let tick = Duration::from_millis(1);
        let retry = RetryOptions::default().with_first_pause(EVER).in_range();
        assert_eq!((retry.first_pause, retry.max_pause), (MAX_TIME, MAX_TIME));
        let retry = retry.with_first_pause(Duration::ZERO).with_max_pause(Duration::ZERO);
        assert_eq!((retry.in_range().first_pause, retry.in_range().max_pause), (tick, tick));

        let reopening = ReopeningOptions::default()
            .with_first_pause(EVER)
            .with_jitter(200)
            .with_max_tries(Some(0))
            .in_range();
        assert_eq!((reopening.first_pause, reopening.max_pause), (MAX_TIME, MAX_TIME));
        assert_eq!((reopening.jitter, reopening.max_tries), (100, Some(1)));
        let reopening = reopening.with_first_pause(Duration::ZERO).with_max_pause(Duration::ZERO);
        assert_eq!(
            (reopening.in_range().first_pause, reopening.in_range().max_pause),
            (tick, tick)
        );

        let zero = LatenessOptions::default()
            .with_min_late(Duration::ZERO)
            .with_min_stuck(Duration::ZERO)
            .with_stuck_factor(0)
            .with_unknown(Duration::ZERO)
            .in_range();
        assert_eq!(
            (zero.min_late, zero.min_stuck, zero.stuck_factor, zero.unknown),
            (tick, tick, 1, tick)
        );
        let ever = zero.with_min_late(EVER).with_min_stuck(EVER).with_stuck_factor(u32::MAX);
        let ever = ever.with_unknown(EVER).in_range();
        assert_eq!((ever.min_late, ever.min_stuck), (MAX_TIME, MAX_TIME));
        assert_eq!((ever.stuck_factor, ever.unknown), (1000, MAX_TIME));

        let options = Options::default().with_connect_timeout(EVER).with_portal_head_start(EVER);
        assert_eq!((options.connect_limit(), options.head_start()), (MAX_TIME, MAX_TIME));

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
        assert_eq!((policy.retry, policy.lateness), Default::default());
        assert_eq!(ReopeningOptions::default().in_range(), ReopeningOptions::default());
        let options = Options::default()
            .with_patience(Duration::from_secs(7))
            .with_retry(RetryOptions::default().with_max_pauses(3))
            .with_lateness(LatenessOptions::default().with_stuck_factor(5));
        let policy = options.policy(None);
        assert_eq!(policy.patience, Duration::from_secs(7));
        assert_eq!((policy.retry.max_pauses, policy.lateness.stuck_factor), (3, 5));
        let of_the_url = Duration::from_secs(9);
        assert_eq!(options.policy(Some(of_the_url)).patience, of_the_url);
    }
}
