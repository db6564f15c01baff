//! Stores the state that the handles of a session share with its driver.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{IscsiName, TargetAddress, Tsih};
use iscsi_session::{Negotiated, Notice, Reopening};
use iscsi_tuner::{OwnLimits, Rate};
use tracing::{Span, error_span, field};

use crate::driver::connection_count::Connections;
use crate::driver::measure::reading::PlanBasis;
use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::events::publisher::Publisher;
use crate::options::Options;
use crate::options::policy::RequestPolicy;
use crate::published::Published;
use crate::state::budget::Budget;
use crate::state::isids::HeldKey;
use crate::state::range_locks::Unsettled;
use crate::state::session_key::SessionKey;
use crate::state::unit_registry::UnitRegistry;
use crate::state::unit_state::UnitState;
use crate::traffic_class::TrafficClass;
use crate::url::{TlsOptions, Url};

/// Phase of a session.
#[derive(Clone, Debug)]
pub(crate) enum SessionPhase {
    LoggingIn,
    LoggedIn,
    Ended(Result<(), Error>),
}

/// Result of the first login.
#[derive(Debug)]
pub(crate) struct LoginResult {
    pub(crate) negotiated: Negotiated,
    pub(crate) portal: TargetAddress,
    /// Address of the target at the other end of the leading connection.
    pub(crate) address: Option<IpAddr>,
    /// TSIH of the session; zero if the target assigns none.
    pub(crate) tsih: Tsih,
}

/// Redirections of the first login. If one was permanent, and none before it temporary, the next login begins
/// at the portal to which the target has moved (RFC 7143 §11.13.5). Otherwise the next login begins where this
/// one began.
#[derive(Debug, Default)]
struct Home {
    moved_to: Option<TargetAddress>,
    /// Whether the latest redirection is temporary.
    is_temporary: bool,
    /// Whether a temporary redirection was followed. A permanent redirection after it concerns the temporary
    /// portal only, so it is not stored.
    is_left: bool,
    /// Event of a redirection to another host. Boxed, because few sessions have such an event.
    note: Option<Box<DiskEvent>>,
}

/// State that all handles of a session share with its driver.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) budgets: Budgets,
    /// The target and the unit that the URL names.
    pub(crate) named: Named,
    pub(crate) key: HeldKey,
    /// Span of the session's log entries.
    pub(crate) span: Span,
    pub(crate) rules: Rules,
    pub(crate) course: Course,
    pub(crate) lengths: Lengths,
    /// Number of commands that were retried.
    pub(crate) retries: AtomicU64,
    /// Set for a session over which the user may open disks: keeps
    /// [`Node::may_open_disks`](crate::session::node::Node::may_open_disks) true.
    pub(crate) user: OnceLock<Arc<()>>,
    connections: Mutex<Connections>,
    basis: Mutex<Option<Arc<PlanBasis>>>,
    pub(crate) units: Units,
}

/// Limits of what may be in flight.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) requests: Budget,
    /// Separate budget for pings, SendTargets and task management, so that a reset never waits for the requests
    /// that it is to free.
    pub(crate) of_session: Budget,
}

/// The target and the unit that a session is for.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) target: Option<IscsiName>,
    pub(crate) lun: Option<Lun>,
    /// Unit serial number that the unit must have; `None` for any.
    pub(crate) serial_number: Option<String>,
    /// How the connections are encrypted; `None` for clear text.
    pub(crate) tls: Option<TlsOptions>,
}

/// Rules for the requests of a session.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Policy for requests that fail or are late.
    pub(crate) policy: RequestPolicy,
    /// Most bytes of one command of a disk.
    pub(crate) max_transfer: usize,
    /// Whether the session is a path of a disk; if so, the disk's traffic class limits its rate.
    is_ruled: AtomicBool,
}

/// Phase of a session, and the result of its login.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) phase: Published<SessionPhase>,
    pub(crate) notices: Publisher<Notice>,
    pub(crate) terms: OnceLock<LoginResult>,
    /// Times after which the session may be reopened, once it has ended.
    pub(crate) reopening: OnceLock<Reopening>,
    home: Mutex<Home>,
}

/// Lengths of requests and limits of outstanding data, in bytes, as the tuners of the connections find them;
/// `u64::MAX` for no limit.
#[derive(Debug)]
pub(crate) struct Lengths {
    /// Length that suits a write of a disk.
    pub(crate) write: AtomicU64,
    /// Length that suits a read of a disk. It depends on the bytes that have arrived so far.
    pub(crate) read: AtomicU64,
    /// Limit of the write data outstanding on a connection to a slow target.
    pub(crate) of_slow_target: AtomicU64,
}

/// The units of a session.
#[derive(Debug)]
pub(crate) struct Units {
    pub(crate) unsettled: Unsettled,
    /// The writes in flight per unit, over all sessions of the initiator.
    pub(crate) registry: Arc<UnitRegistry>,
    states: Mutex<HashMap<Lun, Arc<UnitState>>>,
}

impl Default for Lengths {
    fn default() -> Self {
        let [write, read, of_slow_target] = [u64::MAX; 3].map(AtomicU64::new);
        Self { write, read, of_slow_target }
    }
}

impl Shared {
    pub(crate) fn new(
        budget: Budget,
        url: &Url,
        key: HeldKey,
        options: &Options,
        connections: u16,
        registry: Arc<UnitRegistry>,
    ) -> Self {
        Self {
            budgets: Budgets {
                requests: budget,
                of_session: Budget::new(Options::MAX_SESSION_REQUESTS, 0),
            },
            named: Named {
                target: url.target.clone(),
                lun: url.lun,
                serial_number: url.serial_number.clone(),
                tls: url.tls.clone(),
            },
            span: span(url, key.key),
            key,
            rules: Rules {
                policy: policy_of(options, url),
                max_transfer: options.in_flight.transfer,
                is_ruled: AtomicBool::new(false),
            },
            course: Course {
                phase: Published::new(SessionPhase::LoggingIn),
                notices: Publisher::default(),
                terms: OnceLock::new(),
                reopening: OnceLock::new(),
                home: Mutex::default(),
            },
            lengths: Lengths::default(),
            retries: AtomicU64::new(0),
            user: OnceLock::new(),
            connections: Mutex::new(Connections::wanted(connections)),
            basis: Mutex::default(),
            units: Units { unsettled: Unsettled::default(), registry, states: Mutex::default() },
        }
    }

    /// Marks the session as a path of a disk.
    pub(crate) fn rule_by_class(&self) {
        self.rules.is_ruled.store(true, Ordering::Relaxed);
    }

    /// Returns the present sending rate of the session's connections, if the traffic class of a disk sets one.
    pub(crate) fn pacing_rate(&self) -> Option<Rate> {
        self.class()?.pacing_rate()
    }

    /// Returns the traffic class of the disk that the session is a path of.
    fn class(&self) -> Option<&TrafficClass> {
        self.rules.policy.class.as_ref().filter(|_| self.rules.is_ruled.load(Ordering::Relaxed))
    }

    /// Returns the total time that the disk's requests have waited in their traffic class.
    pub(crate) fn waited_in_class(&self) -> Duration {
        self.class().map(TrafficClass::waited).unwrap_or_default()
    }

    /// Returns the limits that the user has set: the rate of the class, and what may be in flight.
    pub(crate) fn own_limits(&self) -> OwnLimits {
        let mut limits = OwnLimits::default();
        let ceil = self.class().and_then(|class| class.ceil().bits_per_second());
        limits.rate = ceil.and_then(|ceil| Rate::from_bits_per_second(ceil).ok());
        limits.requests = Some(self.budgets.requests.max_requests());
        limits.bytes = Some(self.budgets.requests.max_bytes());
        limits
    }

    /// Calls `look` with the state of the connections, to read or to change it.
    pub(crate) fn with_connections<R>(&self, look: impl FnOnce(&mut Connections) -> R) -> R {
        look(&mut lock(&self.connections))
    }

    /// Records that the target has redirected the login, permanently or not; whether the redirection is followed
    /// is not known yet.
    pub(crate) fn is_redirected(&self, is_permanent: bool) {
        lock(&self.course.home).is_temporary = !is_permanent;
    }

    /// Records that the first login has followed a redirection to this address.
    pub(crate) fn redirected(&self, address: &TargetAddress, note: Option<Box<DiskEvent>>) {
        if !matches!(self.course.phase.get(), SessionPhase::LoggingIn) {
            return;
        }
        let mut home = lock(&self.course.home);
        home.note = note.or_else(|| home.note.take());
        home.is_left |= home.is_temporary;
        if !home.is_left {
            home.moved_to = Some(address.clone());
        }
    }

    /// Returns the event of a redirection to another host, if there was one.
    pub(crate) fn redirection_note(&self) -> Option<DiskEvent> {
        lock(&self.course.home).note.as_deref().cloned()
    }

    /// Returns the address to which the target has permanently moved its portal.
    pub(crate) fn moved_to(&self) -> Option<TargetAddress> {
        lock(&self.course.home).moved_to.clone()
    }

    /// Returns the plan of the leading connection's tuner and its basis; `None` before the end of the login.
    pub(crate) fn basis(&self) -> Option<Arc<PlanBasis>> {
        lock(&self.basis).clone()
    }

    pub(crate) fn set_plan_basis(&self, basis: Arc<PlanBasis>) {
        *lock(&self.basis) = Some(basis);
    }

    /// Returns the state of a unit, which all handles of the unit share.
    pub(crate) fn unit(&self, lun: Lun) -> Arc<UnitState> {
        Arc::clone(lock(&self.units.states).entry(lun).or_default())
    }

    /// Sets the state of a unit that the disk knows already.
    pub(crate) fn adopt_unit(&self, lun: Lun, state: UnitState) -> Arc<UnitState> {
        let state = Arc::new(state);
        lock(&self.units.states).insert(lun, Arc::clone(&state));
        state
    }

    /// Returns the error of a request that receives no response, because the session has ended.
    pub(crate) fn reason_of_end(&self) -> Error {
        match self.course.phase.get() {
            SessionPhase::Ended(Err(error)) => error,
            SessionPhase::LoggingIn | SessionPhase::LoggedIn | SessionPhase::Ended(Ok(())) => {
                Error::closed()
            }
        }
    }

    /// Waits for the end of the login.
    pub(crate) async fn logged_in(&self) -> Result<(), Error> {
        let result = |phase: &SessionPhase| match phase {
            SessionPhase::LoggingIn => None,
            SessionPhase::LoggedIn => Some(Ok(())),
            SessionPhase::Ended(Ok(())) => Some(Err(Error::closed())),
            SessionPhase::Ended(Err(error)) => Some(Err(error.clone())),
        };
        self.course.phase.find(result).await
    }

    /// Waits for the end of the session.
    pub(crate) async fn ended(&self) -> Result<(), Error> {
        let result = |phase: &SessionPhase| match phase {
            SessionPhase::LoggingIn | SessionPhase::LoggedIn => None,
            SessionPhase::Ended(result) => Some(result.clone()),
        };
        self.course.phase.find(result).await
    }
}

fn policy_of(options: &Options, url: &Url) -> RequestPolicy {
    let policy = options.policy(url.parameters.retry_timeout.map(seconds));
    let reservation_key = url.parameters.reservation_key.or(policy.reservation_key);
    RequestPolicy { reservation_key, ..policy }
}

/// Creates the span that names the session in the log. It has the error level, so that it appears with every
/// line that is shown. It has no parent, because the session outlives the span of the caller that opens it.
fn span(url: &Url, key: SessionKey) -> Span {
    let (target, lun) = (url.target.as_ref().map(field::display), url.lun.map(field::display));
    error_span!(parent: None, "session", target, lun, isid = %key.isid)
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
