//! Opens a disk by its URL: the first session as fast as possible, the others concurrently.
//!
//! ```text
//!  round trips    1         2         3          4          5
//!  first session  connect ─ log in ─ queries ─── (rest) ──► data
//!  the others                └─ connect ─ log in ─ which unit? ──► data
//! ```
//! The queries of the first session take two round trips if the target opens its command window only with its
//! first response.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iscsi_multipath::topology::Topology;
use iscsi_multipath::{PortalId, UnitName};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, UnitCause};
use crate::events::disk_event::DiskEvent;
use crate::handles::disk::{Disk, span};
use crate::multipath::disk_status::SessionsReason;
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::{Path, wait_limit};
use crate::multipath::portals::Portals;
use crate::multipath::report::Report;
use crate::multipath::supervisor::reopen::{ExpectedUnit, Opener};
use crate::multipath::supervisor::session_changes::open_as_wanted;
use crate::multipath::supervisor::{Supervisor, SupervisorConfig};
use crate::options::sessions::Sessions;
use crate::published::Published;
use crate::runtime;
use crate::session::Session;
use crate::session::node::Node;
use crate::state::budget::Budget;
use crate::unit::logical_unit::LogicalUnit;
use crate::url::{Url, UrlError};
use iscsi_multipath::paths::Credit;

impl Session {
    /// Opens the disk that the URL of the session names, over this session only: the disk does not reconnect,
    /// and ends with the session. [`Initiator::disk`](crate::Initiator::disk) opens one that reconnects.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the URL names no unit,
    /// [`UnitChanged`](crate::ErrorKind::UnitChanged) if the unit has another serial number than the URL
    /// requires, or as [`LogicalUnit::disk_without_reconnect`].
    pub async fn disk_without_reconnect(&self) -> Result<Disk, Error> {
        let lun = self.named_lun().ok_or(UrlError::NoUnit)?;
        let disk = match self.logical_unit(lun).disk_without_reconnect().await {
            Err(error) if error.is_no_such_unit() => {
                self.listed_unit(lun).await?.disk_without_reconnect().await?
            }
            result => result?,
        };
        if let Some(expected) = self.expected_serial_number() {
            let found = disk.profile().serial_number.clone().unwrap_or_default();
            if found != expected {
                return Err(UnitCause::SerialNumber { expected: expected.to_owned(), found }.into());
            }
        }
        Ok(disk)
    }
}

impl LogicalUnit {
    /// Opens the unit as a byte-addressed disk over its session only: the disk does not reconnect, and ends
    /// with the session. Registers the session by the [reservation key](crate::Options::with_reservation_key),
    /// if the options have one.
    ///
    /// # Errors
    /// As [`profile`](Self::profile); [`Unsupported`](crate::ErrorKind::Unsupported) if there is a key, and the
    /// unit has no persistent reservations.
    pub async fn disk_without_reconnect(&self) -> Result<Disk, Error> {
        let profile = self.profile().await?;
        self.register().await?;
        Ok(Disk::new(self.clone(), profile))
    }
}

/// Opens the disk of a URL that names a unit.
pub(crate) fn open(node: &Node, url: Url) -> BoxFuture<'_, Result<Disk, Error>> {
    boxed(async move {
        runtime::require()?;
        if url.lun.is_none() {
            return Err(UrlError::NoUnit.into());
        }
        node.count_disk();
        let mut portals = vec![url.portal.clone()];
        portals.extend(url.portals.iter().cloned());
        let report = Arc::new(Report::within(span(url.target.as_ref(), url.lun)));
        let opener = Arc::new(Opener {
            node: node.for_disks_that_are_there(),
            portals: Portals::new(portals, url.all_portals),
            url,
            moved: Mutex::default(),
            groups: Mutex::default(),
            report,
        });
        // Indexes of the portals that are left to try: those that have not refused the unit.
        let mut left: Vec<usize> = (0..opener.portals.len()).collect();
        let mut names = PortalNames::ask(&opener);
        let mut is_second_try = false;
        loop {
            let budget = Budget::of(node.options());
            let (session, portal) = first_session(&opener, &left, &budget).await?;
            opener.remember(portal, &session);
            let error = match first_disk(session.clone(), portal, &opener, &mut names).await {
                Err(error) if error.may_be_of_port() && left.len() > 1 => {
                    left.retain(|other| *other != portal);
                    error
                }
                // A session that ends between its login and its first responses says little about the next one,
                // so the portal is tried once more.
                Err(error) if error.is_of_session() && !is_second_try => {
                    is_second_try = true;
                    error
                }
                result => return result,
            };
            opener.pass_over(portal, &error);
            tokio::spawn(async move { session.logout().await });
        }
    })
}

/// The SendTargets request for the target's portals (`portals=auto`), which runs while the first session logs
/// in.
struct PortalNames(Option<JoinSet<Result<(), Error>>>);

impl PortalNames {
    fn ask(opener: &Arc<Opener>) -> Self {
        if !opener.portals.are_asked_for() {
            return Self(None);
        }
        let mut question = JoinSet::new();
        let (opener, span) = (Arc::clone(opener), opener.report.span().clone());
        question.spawn(async move { opener.discover().await.map(drop) }.instrument(span));
        Self(Some(question))
    }

    /// Waits for the SendTargets response, at most for `limit`. The supervisor repeats the request if the
    /// portals are not known by then.
    async fn wait(&mut self, report: &Report, limit: Duration) {
        let Some(mut question) = self.0.take() else { return };
        let error = match timeout(limit, question.join_next()).await {
            Ok(Some(Ok(Err(error)))) => Some(error),
            Ok(_) => return,
            Err(_) => None,
        };
        report.add_note(DiskEvent::PortalsUnknown { error, limit });
    }
}

/// Opens the disk over a session that is logged in.
async fn first_disk(
    session: Session,
    portal: usize,
    opener: &Arc<Opener>,
    names: &mut PortalNames,
) -> Result<Disk, Error> {
    let sessions = opener.node.options().sessions.in_range();
    let Some(lun) = session.named_lun() else { return Err(UrlError::NoUnit.into()) };
    let unit = session.logical_unit(lun);
    if opener.portals.are_asked_for() {
        // The profile is stored with the unit, so its result is ignored here; an error is returned below.
        let limit = wait_limit(&session);
        tokio::join!(unit.profile(), names.wait(&opener.report, limit)).0.ok();
    }
    let disk = spread_out(session, portal, Arc::clone(opener), sessions).await?;
    // The disk is open, so its commands may wait for the port for as long as the unit reports.
    unit.state().lock().identity.transitions.cut_short(false);
    Ok(disk)
}

/// Logs in at the first portal that responds, and records the portals that failed before it. If other portals
/// are left to try, the unit's commands wait only a short time for a port that changes its state.
async fn first_session(
    opener: &Opener,
    portals: &[usize],
    budget: &Budget,
) -> Result<(Session, usize), Error> {
    let mut logins = JoinSet::new();
    let head_start = opener.node.options().advanced.head_start();
    let has_others = portals.len() > 1;
    for (turn, at) in (0..).zip(portals.iter().copied()) {
        let (node, url, budget) = (opener.node.clone(), opener.url_at(at), budget.clone());
        logins.spawn(async move {
            sleep(head_start.saturating_mul(turn)).await;
            let login = async {
                let session = node.start_at(&url, None, &budget, None)?;
                if let Some(lun) = session.named_lun().filter(|_| has_others) {
                    let unit = session.logical_unit(lun);
                    unit.state().lock().identity.transitions.cut_short(true);
                }
                session.log_in().await?;
                Ok(session)
            };
            (at, login.await)
        });
    }
    let mut failures = BTreeMap::new();
    while let Some(login) = logins.join_next().await {
        match login {
            Ok((at, Ok(session))) => {
                for before in portals.iter().take_while(|before| **before != at) {
                    if let Some(portal) = opener.portals.get(*before) {
                        opener.report.pass_over(&portal, failures.get(before));
                    }
                }
                return Ok((session, at));
            }
            Ok((at, Err(error))) => {
                failures.insert(at, error);
            }
            Err(_) => {}
        }
    }
    Err(failures.into_values().next().unwrap_or_else(Error::closed))
}

/// Opens the disk. Further sessions log in while the first session reads the unit's profile. If the unit cannot
/// be identified, the disk keeps only the first session, and has no supervisor.
async fn spread_out(
    session: Session,
    portal: usize,
    opener: Arc<Opener>,
    sessions: Sessions,
) -> Result<Disk, Error> {
    let (count, reason) = first_number(&session, sessions, &opener.portals);
    if !session.is_reinstated_by_login() {
        opener.report.add_note(DiskEvent::NoTsih);
    }
    let expected = Arc::new(Published::new(None));
    let mut opening = JoinSet::new();
    let mut topology = Topology::new(PortalId(portal));
    for open in topology.open_first(count.saturating_sub(1), opener.portals.len()) {
        let span = opener.report.span().clone();
        let session = open_as_wanted(Arc::clone(&opener), open, None, Arc::clone(&expected));
        opening.spawn(session.instrument(span));
    }
    let disk = session.disk_without_reconnect().await?;
    let name = match disk.unit().name(disk.profile()) {
        Ok(name) => name,
        Err(reason) => {
            opener.report.span().in_scope(|| tracing::warn!("{reason}"));
            opener.report.set_one_session(SessionsReason::Unidentified(reason));
            opener.report.publish_to(&disk.unit().state().known().events);
            return Ok(disk.with_report(Arc::clone(&opener.report)).opened_by(opener));
        }
    };
    if let UnitName::Address(..) = name {
        opener.report.add_note(DiskEvent::UnitUnnamed);
    }
    expected.set(Some(ExpectedUnit { name, like: disk.unit() }));
    let waits = count > 1 && (matches!(sessions, Sessions::Fixed(_)) || opener.portals.len() > 1);
    let limit = wait_limit(&session);
    let first = Path::new(disk.unit(), portal);
    let room = if sessions.max() == 1 { Credit::UNLIMITED } else { first.room() };
    let (policy, report) = (session.policy().clone(), Arc::clone(&opener.report));
    let paths = Paths::new(first, room, session.budget().clone(), policy, Arc::clone(&report));
    report.publish_to(&disk.unit().state().known().events);
    let disk = disk.opened_by(Arc::clone(&opener));
    let config = SupervisorConfig { opener, expected, sessions, reason, topology, opening };
    let mut supervisor = Supervisor::new(&paths, config);
    if waits {
        supervisor.wait_for_opening(&paths, limit).instrument(report.span().clone()).await?;
    }
    tokio::spawn(supervisor.run().instrument(report.span().clone()));
    Ok(disk.over(paths, report))
}

/// Returns the number of sessions to begin with, and the reason for it.
fn first_number(session: &Session, sessions: Sessions, portals: &Portals) -> (u32, String) {
    let (count, max, reason) = match (sessions, session.plan()) {
        (Sessions::Fixed(count), _) => return (count, "as asked for".to_owned()),
        (Sessions::Auto { max }, Some(plan)) => {
            (plan.connections.value.clamp(1, max), max, plan.connections.reason)
        }
        (Sessions::Auto { max }, None) => (1, max, "nothing is known of the link yet".to_owned()),
    };
    let wanted = u32::try_from(portals.len()).unwrap_or(max).min(max);
    if portals.are_asked_for() && count < wanted {
        return (wanted, "one for each portal of the target".to_owned());
    }
    (count, reason)
}
