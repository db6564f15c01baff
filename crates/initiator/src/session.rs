//! The handle of a session.

pub(crate) mod node;
pub(crate) mod path_check;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{FunctionResponse, IscsiName, Isid, TargetAddress, TaskFunction, Tsih};
use iscsi_session::{
    Command, Completion, Config, DiscoveredTarget, Entropy, Negotiated, Stats, decode_send_targets,
};
use iscsi_tuner::Plan;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::driver::connection_count::Connections;
use crate::driver::connector::{Connector, Reach, Segments};
use crate::driver::handle::DriverHandle;
use crate::driver::io::Network;
use crate::driver::measure::reading::Reading;
use crate::driver::peer::Peer;
use crate::driver::request::{Holds, Message, Request};
use crate::driver::shared::{SessionPhase, Shared};
use crate::driver::waiter::Waiter;
use crate::error::Error;
use crate::options::Options;
use crate::options::policy::RequestPolicy;
use crate::state::budget::{Budget, Permit};
use crate::state::isids::HeldKey;
use crate::state::notices::Notices;
use crate::state::outstanding::CommandNumber;
use crate::state::profile::Profile;
use crate::state::range_locks::{RangeGuard, RangeLocks};
use crate::state::segment_limits::SegmentLimits;
use crate::state::session_key::SessionKey;
use crate::state::unit_flushes::UnitFlushes;
use crate::state::unit_registry::UnitRegistry;
use crate::state::unit_state::{Listener, UnitState};
use crate::url::{Url, portal_name};

/// A session with a target: a handle that is cheap to clone and can be used from many tasks.
///
/// When the last handle is dropped, and with it the last [`LogicalUnit`](crate::LogicalUnit),
/// [`Disk`](crate::Disk) and request, the session logs out in the background.
/// [`logout`](Self::logout) does it at once and tells how it went.
///
/// ```
/// use iscsi_initiator::scsi::Lun;
/// use iscsi_initiator::{Error, Initiator};
///
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let unit = RamDisk::new(512, 4096);
/// # let target = TargetConfig::new("iqn.2026-01.org.example:disk", unit);
/// # let server = Server::start(Target::new(target)).await?;
/// # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
/// let session = Initiator::new("iqn.2026-01.org.example:host")?.connect(url).await?;
/// println!("agreed: {:?}", session.negotiated());
/// println!("{:?} there and back", session.ping().await?);
/// assert_eq!(session.report_luns().await?, [Lun::ZERO]);
/// let disk = session.disk().await?;
/// assert_eq!(disk.capacity(), 4096 * 512);
/// session.logout().await?;
/// assert!(matches!(disk.flush().await, Err(Error::Closed)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    driver: DriverHandle,
    shared: Arc<Shared>,
}

/// What all sessions of an initiator have in common.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) options: Options,
    pub(crate) network: Arc<dyn Network>,
    /// What is being written to which unit.
    pub(crate) unit_registry: Arc<UnitRegistry>,
    /// How long segments may be, by address.
    pub(crate) segment_limits: Arc<SegmentLimits>,
}

impl Common {
    /// How connections are opened, with segments of that length.
    pub(crate) fn connector(&self, segments: Segments) -> Connector {
        Connector {
            segments,
            limit: self.options.connect_limit(),
            network: Arc::clone(&self.network),
            tuning: self.options.tuning.clone(),
        }
    }
}

impl Session {
    /// Starts the driver, which begins to connect, or to log in over a connection that stands.
    pub(crate) fn start(
        url: &Url,
        key: HeldKey,
        config: Config,
        entropy: impl Entropy + 'static,
        common: &Common,
        budget: Budget,
        reach: Reach,
    ) -> Self {
        let Common { options, unit_registry, .. } = common;
        let shared = Arc::new(Shared::new(
            budget,
            url,
            key,
            options,
            reach.connections,
            Arc::clone(unit_registry),
        ));
        let is_mutual = config.chap.as_ref().is_some_and(|chap| chap.target.is_some());
        let redirects = url.parameters.redirects.unwrap_or(options.redirects);
        let peer = Peer::new(
            url.portal.clone(),
            url.target.clone(),
            config.initiator_name.clone(),
            config.chap.as_ref().map(|chap| chap.user.clone()),
            redirects.of_login(is_mutual),
        );
        let session = iscsi_session::Session::new(config, entropy, Instant::now().into_std());
        let (driver, task) = DriverHandle::start(session, peer, Arc::clone(&shared), reach);
        tokio::spawn(task.run().instrument(shared.span.clone()));
        Self { driver, shared }
    }

    #[cfg(test)]
    pub(crate) fn driver(&self) -> &DriverHandle {
        &self.driver
    }

    /// Waits for the end of the login, and asks nothing.
    pub(crate) async fn logged_in(&self) -> Result<(), Error> {
        self.shared.logged_in().await
    }

    /// The unit that the URL names.
    pub(crate) fn named_lun(&self) -> Option<Lun> {
        self.shared.lun
    }

    /// The serial number that the URL insists on for that unit.
    pub(crate) fn expected_serial_number(&self) -> Option<&str> {
        self.shared.serial_number.as_deref()
    }

    /// What is known of a unit; the same for all its handles.
    pub(crate) fn unit_state(&self, lun: Lun) -> Arc<UnitState> {
        self.shared.unit(lun)
    }

    /// The same for a unit of which something is known already.
    pub(crate) fn adopt_unit_state(&self, lun: Lun, state: UnitState) -> Arc<UnitState> {
        self.shared.adopt_unit(lun, state)
    }

    /// What is being written to a unit, and its flushes, over this session or another one of the initiator.
    pub(crate) fn shared_of(&self, lun: Lun, profile: &Profile) -> (RangeLocks, Arc<UnitFlushes>) {
        self.shared.unit_registry.of(profile, self.target(), lun)
    }

    /// The addresses of the session's own target, by its own account (RFC 7143 appendix C).
    ///
    /// # Errors
    /// When the target refuses, answers nonsense, or the session ends.
    pub async fn send_targets(&self) -> Result<Vec<DiscoveredTarget>, Error> {
        Ok(decode_send_targets(&self.send_targets_text().await?)?)
    }

    pub(crate) async fn send_targets_text(&self) -> Result<Bytes, Error> {
        let holds = self.holds().await?;
        Waiter::start(&self.driver, &self.shared, holds, Request::SendTargets).sent().await
    }

    /// Sends a NOP-Out and measures the time to its answer (RFC 7143 §11.18): the round trip,
    /// and what lies before it in the send buffer.
    ///
    /// # Errors
    /// When the session ends or the answer does not come in time.
    pub async fn ping(&self) -> Result<Duration, Error> {
        self.ping_with(Bytes::new()).await
    }

    /// The same with data, as much as the target takes in one PDU.
    pub(crate) async fn ping_with(&self, data: Bytes) -> Result<Duration, Error> {
        let holds = self.holds().await?;
        let request = |answer| Request::Ping(data, answer);
        Waiter::start(&self.driver, &self.shared, holds, request).sent().await
    }

    /// Sends a task management function for a unit or the whole target (RFC 7143 §11.5): resets
    /// and the like. Single tasks are aborted by dropping their futures. It waits for no request, since
    /// it may be what frees those that are stuck.
    ///
    /// # Errors
    /// When the session ends first. A refusal is a [`FunctionResponse`].
    pub async fn manage(
        &self,
        function: TaskFunction,
        lun: Lun,
    ) -> Result<FunctionResponse, Error> {
        let holds = self.holds().await?;
        let request = |answer| Request::Manage(function, lun, answer);
        Waiter::start(&self.driver, &self.shared, holds, request).sent().await
    }

    /// What was agreed with the target at login.
    pub fn negotiated(&self) -> Negotiated {
        self.shared.terms.get().map(|terms| terms.negotiated.clone()).unwrap_or_default()
    }

    /// The portal of the session: not that of the URL if the login was redirected.
    pub fn portal(&self) -> Option<&TargetAddress> {
        self.shared.terms.get().map(|terms| &terms.portal)
    }

    /// The target's name; `None` in discovery.
    pub fn target(&self) -> Option<&IscsiName> {
        self.shared.target.as_ref()
    }

    /// The URL of the target, without credentials, unit and options: `iscsi://host:port/name`; of the portal alone in
    /// discovery.
    pub fn target_url(&self) -> String {
        let portal = self.portal().map(portal_name).unwrap_or_default();
        let target = self.target().map(|target| format!("/{target}")).unwrap_or_default();
        format!("iscsi://{portal}{target}")
    }

    /// The initiator's part of the session identifier (RFC 7143 §11.12.5).
    pub fn isid(&self) -> Isid {
        self.key().isid
    }

    /// What tells the session apart from the others of its initiator, also when it is opened anew.
    pub fn key(&self) -> SessionKey {
        self.shared.key.key
    }

    /// Around what is logged of the session outside its driver.
    pub(crate) fn span(&self) -> &Span {
        &self.shared.span
    }

    /// What the target announces, from now on until the session ends.
    pub fn notices(&self) -> Notices {
        self.shared.notices.subscribe()
    }

    /// Counters since the session began. Not to be asked for from within a subscriber of `tracing`, a
    /// [`BufferPool`](crate::device::BufferPool), or the drop of a buffer: the session may be waiting for it.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
    }

    /// How many connections the session has (RFC 7143 §4.2.2), and why they are fewer than
    /// [`Options::connections`]. All but the first join while requests already flow.
    pub fn connections(&self) -> Connections {
        self.shared.with_connections(|connections| connections.clone())
    }

    /// What the tuner has decided about the leading connection and the transfers on it, and why;
    /// `None` before the end of the login. It may change while the session runs.
    pub fn plan(&self) -> Option<Plan> {
        self.of_plan(Plan::clone)
    }

    /// Something of the plan, without a copy of all that it says.
    pub(crate) fn of_plan<R>(&self, ask: impl FnOnce(&Plan) -> R) -> Option<R> {
        self.shared.basis().map(|basis| ask(&basis.plan))
    }

    /// Whether answers may come over several connections, which nothing orders.
    pub(crate) fn may_have_several_connections(&self) -> bool {
        self.shared.with_connections(|connections| connections.wanted > 1)
    }

    /// How many requests are wanted under way on all connections, where the plan wants so many on each.
    pub(crate) fn depth(&self, on_each: impl Fn(&Plan) -> u32) -> Option<u32> {
        let basis = self.shared.basis()?;
        let connections = self.shared.with_connections(|connections| connections.open.max(1));
        let depth = on_each(&basis.plan).saturating_mul(connections);
        // All connections share the command window.
        Some(basis.plan.terms.window.map_or(depth, |window| depth.min(window.max(1))))
    }

    /// What the leading connection does now: two readings tell what held it back between them. It
    /// is the first of [`readings`](Self::readings).
    ///
    /// # Errors
    /// When the session has no connection.
    pub async fn reading(&self) -> Result<Reading, Error> {
        let reading = self.readings().await?.into_iter().next();
        reading.ok_or_else(|| self.shared.reason_of_end())
    }

    /// What each connection does now, the leading one first: their bytes add up to what the
    /// connections that are still there have moved.
    ///
    /// # Errors
    /// When the session has ended.
    pub async fn readings(&self) -> Result<Vec<Reading>, Error> {
        let (answer, readings) = oneshot::channel();
        // When the driver is gone, the sender goes with the message, and that is seen.
        self.driver.tell(Message::Read(answer));
        readings.await.map_err(|_| self.shared.reason_of_end())
    }

    /// Whether the session takes requests.
    pub fn is_open(&self) -> bool {
        matches!(self.shared.phase.get(), SessionPhase::LoggedIn)
    }

    /// Ends the session in order (RFC 7143 §11.14): no request is taken any more, those under way
    /// are finished, then the session is logged out.
    ///
    /// # Errors
    /// Why the session ended, if not by this logout.
    pub async fn logout(&self) -> Result<(), Error> {
        // One that is gone has told its end, or is about to.
        self.driver.tell(Message::Logout);
        self.shared.ended().await
    }

    /// Waits until the session has ended.
    ///
    /// # Errors
    /// Why it ended, if not by a logout.
    pub async fn closed(&self) -> Result<(), Error> {
        self.shared.ended().await
    }

    /// How long a write of a disk had better be, bytes.
    pub(crate) fn longest_write(&self) -> u64 {
        self.shared.longest_write.load(Ordering::Relaxed)
    }

    /// How long a read of a disk had better be, bytes.
    pub(crate) fn longest_read(&self) -> u64 {
        self.shared.longest_read.load(Ordering::Relaxed)
    }

    /// The write data outstanding on a connection that the target takes in time, bytes, if it is slow.
    pub(crate) fn limit_of_slow_target(&self) -> Option<u64> {
        let bytes = self.shared.limit_of_slow_target.load(Ordering::Relaxed);
        Some(bytes).filter(|bytes| *bytes < u64::MAX)
    }

    /// Other sessions have found the target slow.
    pub(crate) fn hear_of_slow_target(&self, bytes: u64) {
        self.driver.tell(Message::SlowTarget(bytes));
    }

    /// How many commands were sent again, because of an end that passes by itself.
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.shared.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// When the session is lost, what it was writing stays taken until [`settle`](Self::settle).
    pub(crate) fn keep_unsettled(&self) {
        self.shared.unsettled.keep();
    }

    /// Another session over the same link has met so much loss, 0 to 1.
    pub(crate) fn hear_of_loss(&self, loss: f64) {
        // A session that has ended need not know.
        self.driver.tell(Message::Loss(loss));
    }

    /// Whether the target can be relied on to drop this session when its login comes again
    /// (RFC 7143 §6.3.5): not where it gave the session no TSIH.
    pub(crate) fn is_reinstated_by_login(&self) -> bool {
        self.shared.terms.get().is_none_or(|terms| terms.tsih != Tsih::NEW_SESSION)
    }

    /// Whether the target has finished with every write of a [`Disk`](crate::Disk) that it was sent over
    /// the session.
    pub(crate) fn is_settled(&self) -> bool {
        self.shared.unsettled.is_settled()
    }

    /// Whether a write waits for what the session left behind.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.shared.unsettled.is_waited_for()
    }

    /// The tag of the portal group that the session is with, if the target has stated it
    /// (RFC 7143 §13.9).
    pub(crate) fn portal_group(&self) -> Option<u16> {
        self.shared.terms.get()?.negotiated.target_portal_group_tag
    }

    /// The target has finished with what the session left behind.
    pub(crate) fn settle(&self) {
        self.shared.unsettled.settle();
    }

    /// How long after its end it may be opened anew, at the soonest (RFC 7143 §7.4).
    pub(crate) fn time2wait(&self) -> Duration {
        let agreed = || {
            let terms = self.shared.terms.get()?;
            Some(Duration::from_secs(terms.negotiated.default_time2wait.into()))
        };
        let told = self.shared.reopening.get().map(|reopening| reopening.time2wait);
        told.or_else(agreed).unwrap_or_default()
    }

    /// Where the target says that the portal has moved for good (RFC 7143 §11.13.5).
    pub(crate) fn moved_to(&self) -> Option<TargetAddress> {
        self.shared.moved_to()
    }

    /// What people are told of a redirection to another host, if the login has followed one.
    pub(crate) fn redirection_note(&self) -> Option<String> {
        self.shared.redirection_note()
    }

    /// Where the leading connection led.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.shared.terms.get().and_then(|terms| terms.address)
    }

    /// What is done about requests that end badly or are late, by the options and the URL.
    pub(crate) fn policy(&self) -> &RequestPolicy {
        &self.shared.policy
    }

    /// It is a path of a disk, so the class of that rules how fast its connections send.
    pub(crate) fn rule_by_class(&self) {
        self.shared.rule_by_class();
    }

    /// The most bytes of one command, by the options.
    pub(crate) fn max_transfer(&self) -> usize {
        self.shared.max_transfer
    }

    /// How many requests with buffers of `bytes` the options allow at once.
    pub(crate) fn max_of(&self, bytes: usize) -> usize {
        self.shared.budget.max_of(bytes)
    }

    /// What the session may have under way, maybe together with others.
    pub(crate) fn budget(&self) -> &Budget {
        &self.shared.budget
    }

    /// Waits for room for a request with buffers of `bytes`.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        self.shared.budget.reserve(bytes).await
    }

    /// What a request to the session itself holds: its place, and no memory.
    async fn holds(&self) -> Result<Holds, Error> {
        let permit = self.shared.session_requests.reserve(0).await?;
        Ok(Holds { _permit: Arc::new(permit), extent: None, listener: None, heeds_doubts: false })
    }

    /// Sends a command once: its place among those of its unit, and its end to come, whatever its status. When that is
    /// given up meanwhile, it is the end of its abort. One that heeds doubts ends in [`TaskError::Withdrawn`] if the unit
    /// may be another one before it is on its way. It is made where it is handed over, as it is long and each move copies it.
    pub(crate) fn perform(
        &self,
        command: impl FnOnce() -> Command,
        permit: Arc<Permit>,
        extent: Option<Arc<RangeGuard>>,
        unit: &Arc<UnitState>,
        heeds_doubts: bool,
    ) -> (CommandNumber, Waiter<'_, Completion>) {
        let (number, waiter) = unit.outstanding.send(|number| {
            let command = command();
            let listener = Some(Listener::new(unit, number, &command.cdb));
            let holds = Holds { _permit: permit, extent, listener, heeds_doubts };
            let request = |answer| Request::Command(command, answer);
            Waiter::start(&self.driver, &self.shared, holds, request)
        });
        // Others may hand theirs over meanwhile.
        (number, waiter.sent())
    }
}
