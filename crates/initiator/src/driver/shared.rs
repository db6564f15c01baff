//! What the handles of a session and its driver share.

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
use crate::url::Url;

/// How far a session has come.
#[derive(Clone, Debug)]
pub(crate) enum SessionPhase {
    LoggingIn,
    LoggedIn,
    Ended(Result<(), Error>),
}

/// What the first login has brought about.
#[derive(Debug)]
pub(crate) struct LoginResult {
    pub(crate) negotiated: Negotiated,
    pub(crate) portal: TargetAddress,
    /// Where the leading connection led.
    pub(crate) address: Option<IpAddr>,
    /// Zero where the target gives its sessions no handle.
    pub(crate) tsih: Tsih,
}

/// Where the next login begins: the first portals of this one, as far as the target has moved from
/// them for good (RFC 7143 §11.13.5).
#[derive(Debug, Default)]
struct Home {
    moved_to: Option<TargetAddress>,
    /// The target says that it is not for good.
    is_temporary: bool,
    /// A redirection for the time being: what comes behind it moves that portal only.
    is_left: bool,
    /// A redirection to another host. Boxed, as hardly a session has one.
    note: Option<Box<DiskEvent>>,
}

/// The common ground of all handles of a session and its driver.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) budgets: Budgets,
    /// What the URL names.
    pub(crate) named: Named,
    pub(crate) key: HeldKey,
    /// Around what is logged of the session.
    pub(crate) span: Span,
    pub(crate) rules: Rules,
    pub(crate) course: Course,
    pub(crate) lengths: Lengths,
    /// Commands that were sent again.
    pub(crate) retries: AtomicU64,
    /// What says that disks may be opened with the node, of a session over which its user may open some.
    pub(crate) user: OnceLock<Arc<()>>,
    connections: Mutex<Connections>,
    basis: Mutex<Option<Arc<PlanBasis>>>,
    pub(crate) units: Units,
}

/// What may be in flight.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) requests: Budget,
    /// Places for what is asked of the session itself: what frees requests that are stuck must not wait
    /// for them.
    pub(crate) of_session: Budget,
}

/// The target and the unit that a session is for.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) target: Option<IscsiName>,
    pub(crate) lun: Option<Lun>,
    /// The unit serial number to insist on for that unit.
    pub(crate) serial_number: Option<String>,
}

/// By what requests are made.
#[derive(Debug)]
pub(crate) struct Rules {
    /// What is done about requests that end badly or are late.
    pub(crate) policy: RequestPolicy,
    /// The most bytes of one command of a disk.
    pub(crate) max_transfer: usize,
    /// It is a path of a disk, whose class rules it.
    is_ruled: AtomicBool,
}

/// How far a session has come, and what came of its login.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) phase: Published<SessionPhase>,
    pub(crate) notices: Publisher<Notice>,
    pub(crate) terms: OnceLock<LoginResult>,
    /// With what times its session may be reopened, once it has ended.
    pub(crate) reopening: OnceLock<Reopening>,
    home: Mutex<Home>,
}

/// What the connections bring to the target in time, bytes; the most that there is where nothing limits them.
#[derive(Debug)]
pub(crate) struct Lengths {
    /// How long a write of a disk had better be.
    pub(crate) write: AtomicU64,
    /// How long a read of a disk had better be, until the connections have brought much.
    pub(crate) read: AtomicU64,
    /// The write data outstanding on a connection that the target takes in time, if it is slow.
    pub(crate) of_slow_target: AtomicU64,
}

/// The units behind a session.
#[derive(Debug)]
pub(crate) struct Units {
    pub(crate) unsettled: Unsettled,
    /// What is being written to which unit, over all sessions of the initiator.
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

    /// From now on it is a path of a disk.
    pub(crate) fn rule_by_class(&self) {
        self.rules.is_ruled.store(true, Ordering::Relaxed);
    }

    /// The rate at which its connections are to send at this time, if the class of a disk says so.
    pub(crate) fn pacing_rate(&self) -> Option<Rate> {
        self.class()?.pacing_rate()
    }

    /// The class of the disk whose path it is.
    fn class(&self) -> Option<&TrafficClass> {
        self.rules.policy.class.as_ref().filter(|_| self.rules.is_ruled.load(Ordering::Relaxed))
    }

    /// The time so far in which requests of its disk have waited in their class.
    pub(crate) fn waited_in_class(&self) -> Duration {
        self.class().map(TrafficClass::waited).unwrap_or_default()
    }

    /// The limits of the user: the rate of the class, and what may be in flight.
    pub(crate) fn own_limits(&self) -> OwnLimits {
        let mut limits = OwnLimits::default();
        let ceil = self.class().and_then(|class| class.ceil().bits_per_second());
        limits.rate = ceil.and_then(|ceil| Rate::from_bits_per_second(ceil).ok());
        limits.requests = Some(self.budgets.requests.max_requests());
        limits.bytes = Some(self.budgets.requests.max_bytes());
        limits
    }

    /// Looks at the connections, or notes what became of them.
    pub(crate) fn with_connections<R>(&self, look: impl FnOnce(&mut Connections) -> R) -> R {
        look(&mut lock(&self.connections))
    }

    /// A login is redirected; whether that is followed is not known yet.
    pub(crate) fn is_redirected(&self, is_permanent: bool) {
        lock(&self.course.home).is_temporary = !is_permanent;
    }

    /// The first login has followed a redirection to this address.
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

    /// The redirection to another host, if there was one.
    pub(crate) fn redirection_note(&self) -> Option<DiskEvent> {
        lock(&self.course.home).note.as_deref().cloned()
    }

    /// Where the target says that its portal has moved for good.
    pub(crate) fn moved_to(&self) -> Option<TargetAddress> {
        lock(&self.course.home).moved_to.clone()
    }

    /// What the tuner has decided; `None` before the end of the login.
    pub(crate) fn basis(&self) -> Option<Arc<PlanBasis>> {
        lock(&self.basis).clone()
    }

    pub(crate) fn set_plan_basis(&self, basis: Arc<PlanBasis>) {
        *lock(&self.basis) = Some(basis);
    }

    /// What is known of a unit; the same for all its handles.
    pub(crate) fn unit(&self, lun: Lun) -> Arc<UnitState> {
        Arc::clone(lock(&self.units.states).entry(lun).or_default())
    }

    /// The same for a unit of which something is known already.
    pub(crate) fn adopt_unit(&self, lun: Lun, state: UnitState) -> Arc<UnitState> {
        let state = Arc::new(state);
        lock(&self.units.states).insert(lun, Arc::clone(&state));
        state
    }

    /// Why a request gets no answer any more.
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

/// Which session it is. At the level of errors, so that it is there with every line that is shown; not
/// within the span of whoever asks for the session, which it outlives.
fn policy_of(options: &Options, url: &Url) -> RequestPolicy {
    let policy = options.policy(url.parameters.retry_timeout.map(seconds));
    let reservation_key = url.parameters.reservation_key.or(policy.reservation_key);
    RequestPolicy { reservation_key, ..policy }
}

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
