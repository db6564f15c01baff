//! Defines the handle of a session.

pub(crate) mod discovered_target;
pub(crate) mod node;
pub(crate) mod path_check;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use iscsi_multipath::Profile;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{FunctionResponse, IscsiName, Isid, TargetAddress, TaskFunction, Tsih};
use iscsi_session::{Command, Config, Entropy, Negotiated, Stats, decode_send_targets};
use iscsi_tuner::Plan;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::driver::clear_text::ClearText;
use crate::driver::connection_count::Connections;
use crate::driver::connector::{Connector, Encryption, Reach, Segments};
use crate::driver::handle::DriverHandle;
use crate::driver::measure::reading::Reading;
use crate::driver::peer::Peer;
use crate::driver::request::{Answered, Holds, Message, Request, RequestId, Submission};
use crate::driver::shared::{SessionPhase, Shared};
use crate::driver::waiter::Waiter;
use crate::error::{Cause, Error};
use crate::events::disk_event::DiskEvent;
use crate::options::Options;
use crate::options::policy::RequestPolicy;
use crate::session::discovered_target::DiscoveredTarget;
use crate::state::budget::{Budget, Permit};
use crate::state::isids::HeldKey;
use crate::state::notices::Notices;
use crate::state::range_locks::{RangeGuard, RangeLocks};
use crate::state::segment_limits::SegmentLimits;
use crate::state::session_key::SessionKey;
use crate::state::unit_flushes::UnitFlushes;
use crate::state::unit_registry::UnitRegistry;
use crate::state::unit_state::{CommandTerms, Listener, UnitState};
use crate::transport::Network;
use crate::url::{Url, portal_name, scheme};

/// A session with a target: a handle that is cheap to clone and can be used from many tasks.
///
/// The session logs out in the background when the last handle is dropped, and with it the last
/// [`LogicalUnit`](crate::LogicalUnit), [`Disk`](crate::Disk) and request. [`logout`](Self::logout)
/// logs out immediately and reports the result. A session that is lost is not reconnected; a disk
/// from [`Initiator::disk`](crate::Initiator::disk) reconnects its sessions.
///
/// ```
/// use iscsi_initiator::scsi::Lun;
/// use iscsi_initiator::{ErrorKind, Initiator};
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
/// let disk = session.disk_without_reconnect().await?;
/// assert_eq!(disk.capacity(), 4096 * 512);
/// session.logout().await?;
/// assert_eq!(disk.flush().await.unwrap_err().kind(), ErrorKind::Closed);
/// # Ok(())
/// # }
/// ```
#[doc(alias("nexus", "connection"))]
#[derive(Clone, Debug)]
pub struct Session {
    driver: DriverHandle,
    shared: Arc<Shared>,
}

/// State that all sessions of an initiator share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) options: Options,
    pub(crate) network: Arc<dyn Network>,
    /// The writes in flight per unit.
    pub(crate) unit_registry: Arc<UnitRegistry>,
    /// Limits of the segment length, by address.
    pub(crate) segment_limits: Arc<SegmentLimits>,
    /// Whether a public address was reached in clear text; `None` over another network than TCP.
    pub(crate) clear_text: Option<Arc<ClearText>>,
}

impl Common {
    /// Returns how to open the connections of a URL, with these limits of the segment length.
    pub(crate) fn connector(&self, url: &Url, segments: Segments) -> Connector {
        Connector {
            encryption: match (&url.tls, &self.options.trust.tls) {
                (None, _) => Encryption::Clear(self.clear_text.clone()),
                (Some(options), Some(tls)) => Encryption::Tls(Arc::clone(tls), options.clone()),
                (Some(_), None) => Encryption::Missing,
            },
            segments,
            limit: self.options.advanced.sockets.connect_limit(),
            network: Arc::clone(&self.network),
            tuning: self.options.tuning.clone(),
        }
    }
}

impl Session {
    /// Starts the driver, which connects, or logs in over an open connection.
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
        let redirects = url.parameters.redirects.unwrap_or(options.trust.redirects);
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

    /// Waits for the end of the login, without sending a request.
    pub(crate) async fn logged_in(&self) -> Result<(), Error> {
        self.shared.logged_in().await
    }

    /// Returns the LUN of the unit that the URL names.
    pub(crate) fn named_lun(&self) -> Option<Lun> {
        self.shared.named.lun
    }

    /// Returns the serial number that the unit named in the URL must have, if the URL requires one.
    pub(crate) fn expected_serial_number(&self) -> Option<&str> {
        self.shared.named.serial_number.as_deref()
    }

    /// Returns the state of a unit, which all handles of the unit share.
    pub(crate) fn unit_state(&self, lun: Lun) -> Arc<UnitState> {
        self.shared.unit(lun)
    }

    /// Sets the state of a unit that the disk knows already.
    pub(crate) fn adopt_unit_state(&self, lun: Lun, state: UnitState) -> Arc<UnitState> {
        self.shared.adopt_unit(lun, state)
    }

    /// Returns the range locks and the flushes of a unit, which all sessions of the initiator share.
    pub(crate) fn shared_of(&self, lun: Lun, profile: &Profile) -> (RangeLocks, Arc<UnitFlushes>) {
        self.shared.units.registry.of(profile, self.target(), lun)
    }

    /// Asks the target for its own addresses (SendTargets, RFC 7143 appendix C).
    ///
    /// # Errors
    /// When the target refuses, its response is malformed, or the session ends.
    pub async fn send_targets(&self) -> Result<Vec<DiscoveredTarget>, Error> {
        let targets = decode_send_targets(&self.send_targets_text().await?).map_err(Cause::from)?;
        let asked = self.portal().ok_or_else(Error::closed)?;
        Ok(DiscoveredTarget::all(targets, asked, self.shared.named.tls.as_ref()))
    }

    pub(crate) async fn send_targets_text(&self) -> Result<Bytes, Error> {
        let holds = self.holds().await?;
        Waiter::start(&self.driver, &self.shared, holds, Request::SendTargets).await
    }

    /// Sends a NOP-Out and returns the time until the NOP-In arrives (RFC 7143 §11.18): the round-trip time,
    /// plus the time that the NOP-Out waits for earlier data in the send buffer.
    ///
    /// # Errors
    /// When the session ends, or the NOP-In does not arrive within the time limit.
    #[doc(alias("NOP-Out", "RTT"))]
    pub async fn ping(&self) -> Result<Duration, Error> {
        self.ping_with(Bytes::new()).await
    }

    /// Sends a NOP-Out with data, at most as much as the target takes in one PDU.
    pub(crate) async fn ping_with(&self, data: Bytes) -> Result<Duration, Error> {
        let holds = self.holds().await?;
        let request = |answer| Request::Ping(data, answer);
        Waiter::start(&self.driver, &self.shared, holds, request).await
    }

    /// Sends a task management function for a unit or the whole target (RFC 7143 §11.5), such as a reset. To
    /// abort a single task, drop its future. The function does not wait for the budget of other requests,
    /// because it may be needed to free requests that are stuck.
    ///
    /// # Errors
    /// When the session ends first. A refusal is a [`FunctionResponse`].
    #[doc(alias("reset", "abort"))]
    pub async fn manage(
        &self,
        function: TaskFunction,
        lun: Lun,
    ) -> Result<FunctionResponse, Error> {
        let holds = self.holds().await?;
        let request = |answer| Request::Manage(function, lun, answer);
        Waiter::start(&self.driver, &self.shared, holds, request).await
    }

    /// Returns the parameters that were negotiated at login.
    pub fn negotiated(&self) -> Negotiated {
        self.shared.course.terms.get().map(|terms| terms.negotiated.clone()).unwrap_or_default()
    }

    /// Returns the portal of the session. After a redirection it differs from the portal in the
    /// URL.
    pub fn portal(&self) -> Option<&TargetAddress> {
        self.shared.course.terms.get().map(|terms| &terms.portal)
    }

    /// Returns the target's name; `None` in a discovery session.
    pub fn target(&self) -> Option<&IscsiName> {
        self.shared.named.target.as_ref()
    }

    /// Returns the URL of the target, without credentials, unit and options: `iscsi://host:port/name`, over TLS
    /// `iscsis://host:port/name`; in discovery without the name.
    pub fn target_url(&self) -> String {
        let portal = self.portal().map(portal_name).unwrap_or_default();
        let target = self.target().map(|target| format!("/{target}")).unwrap_or_default();
        let scheme = scheme(self.shared.named.tls.is_some());
        format!("{scheme}{portal}{target}")
    }

    /// Returns the initiator's part of the session identifier (RFC 7143 §11.12.5).
    pub fn isid(&self) -> Isid {
        self.key().isid
    }

    /// Returns a key that identifies the session among all sessions of its initiator, before and
    /// after a reconnect.
    pub fn key(&self) -> SessionKey {
        self.shared.key.key
    }

    /// Returns the span for log entries about the session outside its driver.
    pub(crate) fn span(&self) -> &Span {
        &self.shared.span
    }

    /// Subscribes to later announcements of the target, until the session ends.
    #[doc(alias("async message", "events"))]
    pub fn notices(&self) -> Notices {
        Notices::of(&self.shared.course.notices)
    }

    /// Returns the counters of the session since its login. Do not call it from a subscriber of
    /// `tracing`, a [`BufferPool`](crate::device::BufferPool), or the drop of a buffer: the session
    /// may be waiting for these, which would be a deadlock.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
    }

    /// Returns how many connections the session has (RFC 7143 §4.2.2), and why they are fewer than
    /// [`Options::with_connections`]. All but the first one join while requests are already in flight.
    #[doc(alias = "MC/S")]
    pub fn connections(&self) -> Connections {
        self.shared.with_connections(|connections| connections.clone())
    }

    /// Returns the tuner's plan for the leading connection and its transfers, with reasons; `None`
    /// before the end of the login. The plan may change while the session runs.
    pub fn plan(&self) -> Option<Plan> {
        self.of_plan(Plan::clone)
    }

    /// Calls `ask` with the plan and returns the result, without a copy of the plan.
    pub(crate) fn of_plan<R>(&self, ask: impl FnOnce(&Plan) -> R) -> Option<R> {
        self.shared.basis().map(|basis| ask(&basis.plan))
    }

    /// Returns whether responses may arrive over several connections, which have no common order.
    pub(crate) fn may_have_several_connections(&self) -> bool {
        self.shared.with_connections(|connections| connections.wanted > 1)
    }

    /// Returns how many requests should be in flight on all connections together. `on_each` returns the number
    /// per connection from the plan.
    pub(crate) fn depth(&self, on_each: impl Fn(&Plan) -> u32) -> Option<u32> {
        let basis = self.shared.basis()?;
        let connections = self.shared.with_connections(|connections| connections.open.max(1));
        let depth = on_each(&basis.plan).saturating_mul(connections);
        // All connections share the command window.
        Some(basis.plan.terms.window.map_or(depth, |window| depth.min(window.max(1))))
    }

    /// Measures the leading connection: the first one of [`readings`](Self::readings). Compare two readings to
    /// find out what held the connection back between them.
    ///
    /// # Errors
    /// When the session has no connection.
    pub async fn reading(&self) -> Result<Reading, Error> {
        let reading = self.readings().await?.into_iter().next();
        reading.ok_or_else(|| self.shared.reason_of_end())
    }

    /// Measures each open connection, the leading one first. The bytes that closed connections have moved are
    /// in none of the readings.
    ///
    /// # Errors
    /// When the session has ended.
    pub async fn readings(&self) -> Result<Vec<Reading>, Error> {
        let (answer, readings) = oneshot::channel();
        // If the driver is gone, the message is dropped together with the sender, and the receiver returns an
        // error.
        self.driver.send(Message::Read(answer));
        readings.await.map_err(|_| self.shared.reason_of_end())
    }

    /// Returns whether the session accepts requests.
    pub fn is_open(&self) -> bool {
        matches!(self.shared.course.phase.get(), SessionPhase::LoggedIn)
    }

    /// Ends the session in order (RFC 7143 §11.14): refuses new requests, waits for those in
    /// flight, then logs out.
    ///
    /// # Errors
    /// The reason why the session ended, if not by this logout.
    #[doc(alias("close", "disconnect"))]
    pub async fn logout(&self) -> Result<(), Error> {
        // If the driver is gone, it has published the end of the session, or is about to.
        self.driver.send(Message::Logout);
        self.shared.ended().await
    }

    /// Waits until the session has ended.
    ///
    /// # Errors
    /// The reason why it ended, if not by a logout.
    pub async fn closed(&self) -> Result<(), Error> {
        self.shared.ended().await
    }

    /// Returns the length that suits a write of a disk, in bytes.
    pub(crate) fn longest_write(&self) -> u64 {
        self.shared.lengths.write.load(Ordering::Relaxed)
    }

    /// Returns the length that suits a read of a disk, in bytes. It depends on the bytes that have arrived so
    /// far.
    pub(crate) fn longest_read(&self) -> u64 {
        self.shared.lengths.read.load(Ordering::Relaxed)
    }

    /// Returns the limit of the write data outstanding on a connection, in bytes, if the target is slow.
    pub(crate) fn limit_of_slow_target(&self) -> Option<u64> {
        let bytes = self.shared.lengths.of_slow_target.load(Ordering::Relaxed);
        Some(bytes).filter(|bytes| *bytes < u64::MAX)
    }

    /// Passes the limit of other sessions that found the target slow to the driver: `bytes` is the write data
    /// that each of them may have outstanding.
    pub(crate) fn on_slow_target(&self, bytes: u64) {
        self.driver.send(Message::SlowTarget(bytes));
    }

    /// Returns the number of commands that were retried.
    #[doc(alias = "retry")]
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn count_retry(&self) {
        self.shared.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the session keep the ranges of its writes locked, if it is lost, until [`settle`](Self::settle)
    /// is called.
    pub(crate) fn keep_unsettled(&self) {
        self.shared.units.unsettled.keep();
    }

    /// Passes the loss that another session has measured over the same link, 0 to 1, to the driver.
    pub(crate) fn on_link_loss(&self, loss: f64) {
        // A session that has ended does not need the loss, so the message may get lost.
        self.driver.send(Message::Loss(loss));
    }

    /// Returns whether a new login under the same name makes the target drop this session (RFC 7143 §6.3.5).
    /// Returns false if the target gave the session no TSIH, because then this is uncertain.
    pub(crate) fn is_reinstated_by_login(&self) -> bool {
        self.shared.course.terms.get().is_none_or(|terms| terms.tsih != Tsih::NEW_SESSION)
    }

    /// Returns whether the target has finished with every write of a [`Disk`](crate::Disk) that was sent over
    /// the session.
    pub(crate) fn is_settled(&self) -> bool {
        self.shared.units.unsettled.is_settled()
    }

    /// Returns whether a write waits for the unsettled writes of the session.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.shared.units.unsettled.is_waited_for()
    }

    /// Returns the tag of the portal group of the session, if the target has stated it (RFC 7143 §13.9).
    pub(crate) fn portal_group(&self) -> Option<u16> {
        self.shared.course.terms.get()?.negotiated.target_portal_group_tag
    }

    /// Releases the ranges of the session's unsettled writes: the target has finished with them.
    pub(crate) fn settle(&self) {
        self.shared.units.unsettled.settle();
    }

    /// Returns the shortest time from the end of the session to a reconnect (RFC 7143 §7.4).
    pub(crate) fn time2wait(&self) -> Duration {
        let agreed = || {
            let terms = self.shared.course.terms.get()?;
            Some(Duration::from_secs(terms.negotiated.default_time2wait.into()))
        };
        let told = self.shared.course.reopening.get().map(|reopening| reopening.time2wait);
        told.or_else(agreed).unwrap_or_default()
    }

    /// Returns the address to which the target has permanently moved the portal (RFC 7143 §11.13.5).
    pub(crate) fn moved_to(&self) -> Option<TargetAddress> {
        self.shared.moved_to()
    }

    /// Returns the event of a redirection to another host, if the login has followed one.
    pub(crate) fn redirection_note(&self) -> Option<DiskEvent> {
        self.shared.redirection_note()
    }

    /// Returns the address of the leading connection.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.shared.course.terms.get().and_then(|terms| terms.address)
    }

    /// Returns the policy for requests that fail or are late, as the options and the URL set it.
    pub(crate) fn policy(&self) -> &RequestPolicy {
        &self.shared.rules.policy
    }

    /// Marks the session as a path of a disk, so that the disk's traffic class limits how fast its connections
    /// send.
    pub(crate) fn rule_by_class(&self) {
        self.shared.rule_by_class();
    }

    /// Returns the maximum length of one command that the options allow, in bytes.
    pub(crate) fn max_transfer(&self) -> usize {
        self.shared.rules.max_transfer
    }

    /// Returns the number of concurrent requests with buffers of `bytes` bytes that the options allow.
    pub(crate) fn max_of(&self, bytes: usize) -> usize {
        self.shared.budgets.requests.max_of(bytes)
    }

    /// Returns the budget of requests and bytes in flight, which several sessions may share.
    pub(crate) fn budget(&self) -> &Budget {
        &self.shared.budgets.requests
    }

    /// Waits until the budget has room for a request with buffers of `bytes` bytes.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Permit, Error> {
        self.shared.budgets.requests.reserve(bytes).await
    }

    /// Reserves a place in the separate budget for requests to the session itself, such as pings; they need no
    /// memory.
    async fn holds(&self) -> Result<Holds, Error> {
        let permit = self.shared.budgets.of_session.reserve(0).await?;
        Ok(Holds { _permit: Arc::new(permit), extent: None, listener: None })
    }

    /// Sends a command once. The future returns its result, whatever the status; if the command is given up,
    /// the result comes after the abort has ended. A command that only the identified unit may execute ends in
    /// [`TaskError::Withdrawn`](iscsi_session::TaskError::Withdrawn) if the unit's identity comes into doubt
    /// before the command is sent.
    ///
    /// `command` creates the command where it is stored, because the command is large and each move would copy
    /// it.
    pub(crate) fn perform(
        &self,
        command: impl FnOnce() -> Command,
        permit: Arc<Permit>,
        extent: Option<Arc<RangeGuard>>,
        unit: &Arc<UnitState>,
        terms: CommandTerms,
    ) -> Waiter<'_, Answered> {
        let listener = Some(Listener::new(Arc::clone(unit), terms));
        let holds = Holds { _permit: permit, extent, listener };
        let request = |answer| Request::Command(command(), answer);
        Waiter::start(&self.driver, &self.shared, holds, request)
    }

    /// Sends the command of a disk's attempt once, like [`perform`](Self::perform), but the listener reports its
    /// result.
    pub(crate) fn hand_over(
        &self,
        command: impl FnOnce() -> Command,
        permit: Arc<Permit>,
        extent: Option<Arc<RangeGuard>>,
        listener: impl FnOnce() -> Listener,
    ) -> RequestId {
        let id = self.driver.next_id();
        self.driver.submit(|| {
            let holds = Holds { _permit: permit, extent, listener: Some(listener()) };
            Submission { id, request: Request::Attempt(command()), holds }
        });
        id
    }

    /// Gives up a command that was [handed over](Self::hand_over). Its result is still reported.
    pub(crate) fn give_up(&self, id: RequestId) {
        // If the driver is gone, the command has ended.
        self.driver.send(Message::Cancel(id));
    }

    /// Returns why the session accepts no more requests.
    pub(crate) fn reason_of_end(&self) -> Error {
        self.shared.reason_of_end()
    }

    /// Returns the event that segments are kept short because of the path; `None` if they are not.
    pub(crate) fn path_note(&self) -> Option<DiskEvent> {
        let limit = self.shared.basis()?.measurement.segment_limit?;
        Some(DiskEvent::SegmentsLimited { portal: self.portal()?.clone(), limit })
    }
}
