//! Opens further sessions of a disk, and reconnects lost ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_multipath::reconnect::{LostSession, Reconnect, Step};
use iscsi_multipath::topology::Why;
use iscsi_multipath::{Mismatch, PortalId, UnitName, check_block_size};
use iscsi_pdu::TargetAddress;
use iscsi_session::{SessionError, Timer};
use tokio::time::{Instant, sleep_until};

use crate::driver::connector::Connected;
use crate::driver::referral::Referral;
use crate::error::{Cause, Error, SessionCause, UnitCause};
use crate::events::waiting::WaitCause;
use crate::multipath::paths::now;
use crate::multipath::paths::path::Path;
use crate::multipath::portals::Portals;
use crate::multipath::portals::race::{PortalRace, Reached};
use crate::multipath::report::Report;
use crate::multipath::supervisor::event::NotOpened;
use crate::multipath::supervisor::reinstatement::{Lost, settle_by};
use crate::published::Published;
use crate::session::Session;
use crate::session::node::{HostEntropy, Node};
use crate::state::budget::Budget;
use crate::state::session_key::SessionKey;
use crate::unit::identity::mismatch_error;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::probe;
use crate::url::{Url, portal_name};

/// Opens sessions with the unit of a disk.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) node: Node,
    pub(crate) url: Url,
    /// The portals that lead to the unit, including that of the first session.
    pub(crate) portals: Portals,
    /// New addresses of portals from which the target has moved for good.
    pub(crate) moved: Mutex<BTreeMap<usize, TargetAddress>>,
    /// The portal group that each portal led to at the last login there, if the target states the group.
    pub(crate) groups: Mutex<BTreeMap<usize, u16>>,
    pub(crate) report: Arc<Report>,
}

/// The unit that a further session must lead to.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedUnit {
    pub(crate) name: UnitName,
    /// The unit through the first session, with its known identity and the ranges that are being written.
    pub(crate) like: LogicalUnit,
}

/// The expected unit, once the first session has identified it. Other sessions log in meanwhile.
pub(crate) type ExpectedUnitReceiver = Arc<Published<Option<ExpectedUnit>>>;

impl Opener {
    /// Opens a further session, at the first of these portals that leads to the unit.
    pub(crate) async fn open(
        &self,
        why: Why,
        portals: Vec<usize>,
        expected: ExpectedUnitReceiver,
    ) -> Result<Path, Error> {
        let first = portals.first().copied().unwrap_or_default();
        match why {
            Why::Count | Why::Flush | Why::Better | Why::Lost(_) => {
                self.open_at_any(&portals, expected).await
            }
            Why::Spare => self.open_spare(first, expected).await,
            Why::Need | Why::Standby | Why::Spread => self.open_if_served(first, expected).await,
        }
    }

    /// Opens a session at the first of these portals. If a portal does not answer, or nothing confirms that
    /// it leads to the unit, tries the next one.
    async fn open_at_any(
        &self,
        portals: &[usize],
        expected: ExpectedUnitReceiver,
    ) -> Result<Path, Error> {
        let first = portals.first().copied().unwrap_or_default();
        let _turn = self.portals.turn(first).await;
        let mut race = PortalRace::new(self.node.options().advanced.head_start());
        self.run(&mut race, portals);
        let mut failure = None;
        while let Some((portal, reached)) = race.next().await {
            let opened = match reached {
                Ok(connected) => {
                    Box::pin(self.open_at(portal, Some(connected), expected.clone())).await
                }
                Err(error) => Err(error),
            };
            match opened {
                Err(error) if leads_on(&error) => {
                    if let Some((portal, error)) = failure.replace((portal, error)) {
                        self.pass_over(portal, &error);
                    }
                }
                result => {
                    if let Some((portal, error)) = failure {
                        self.pass_over(portal, &error);
                    }
                    return result;
                }
            }
        }
        Err(failure.map_or_else(Error::closed, |(_, error)| error))
    }

    pub(crate) fn pass_over(&self, portal: usize, error: &Error) {
        if let Some(portal) = self.portals.get(portal) {
            self.report.pass_over(&portal, Some(error));
        }
    }

    async fn open_at(
        &self,
        portal: usize,
        reached: Option<Connected>,
        expected: ExpectedUnitReceiver,
    ) -> Result<Path, Error> {
        let session = self.log_in(portal, None, reached).await?;
        let expected = known(expected).await;
        let known = expected.like.profile().await?;
        let like = expected.like.state();
        let asked_at = like.lock().identity.shared_reasons();
        let state = like.shared_with_another_session(&known, asked_at);
        let unit = session.adopt_unit(expected.like.lun(), state);
        let question = unit.state().ask_size();
        let asked = unit.through_one_of_several_ports();
        let capacity = probe::capacity_now(&asked, &known.capacity);
        let (found, capacity) = tokio::join!(asked.ask_name(&expected.name), capacity);
        self.check(portal, &expected, found?)?;
        let mut path = Path::new(unit, portal);
        match capacity {
            Ok(capacity) => {
                check_block_size(&known.capacity, &capacity)
                    .map_err(|why| path.unit.error_of(why))?;
                path.unit.state().on_size(question, &capacity);
            }
            // The port has not reported the capacity. Therefore the unit's identity is put in doubt: when the
            // port serves the unit, the capacity is read before any request is sent over the path.
            Err(error) if known.target_port_group_support.is_supported() => {
                path = path.refused_by_port(error.refusing_port().ok_or(error)?);
                path.unit.state().add_reason();
            }
            Err(error) => return Err(error),
        }
        // If the port refuses the registration, the path must not be used for writes later.
        path.unit.join_registration().await?;
        Ok(path)
    }

    /// Opens a session at this portal, whether or not its port serves the unit.
    async fn open_spare(
        &self,
        portal: usize,
        expected: ExpectedUnitReceiver,
    ) -> Result<Path, Error> {
        let _turn = self.portals.turn(portal).await;
        self.open_at(portal, None, expected).await
    }

    /// Opens a session at a portal, if its port serves the unit.
    ///
    /// # Errors
    /// The unit's error, if the port does not serve it.
    async fn open_if_served(
        &self,
        portal: usize,
        expected: ExpectedUnitReceiver,
    ) -> Result<Path, Error> {
        let _turn = self.portals.turn(portal).await;
        let path = self.open_at(portal, None, expected).await?;
        if let Err(error) = path.unit.test_unit_ready().await {
            // If unregistering fails, the registration stays recorded.
            drop(path.unit.unregister().await);
            return Err(error);
        }
        Ok(path)
    }

    /// Logs in at the address to which the target has moved from a portal for good. If the target has not
    /// moved, or the login there fails, logs in at the portal itself: the target may have moved again, or
    /// back.
    async fn log_in(
        &self,
        portal: usize,
        key: Option<SessionKey>,
        reached: Option<Connected>,
    ) -> Result<Session, Error> {
        let has_moved = self.moved().contains_key(&portal);
        let result = Box::pin(self.log_in_once(portal, key, reached)).await;
        if result.is_ok() || !has_moved {
            return result;
        }
        self.moved().remove(&portal);
        Box::pin(self.log_in_once(portal, key, None)).await
    }

    async fn log_in_once(
        &self,
        portal: usize,
        key: Option<SessionKey>,
        reached: Option<Connected>,
    ) -> Result<Session, Error> {
        // The queries have their own budget, because requests of the disk may hold the whole budget of the
        // disk while they wait for this session.
        let questions = Budget::of(self.node.options());
        let (url, referral) = self.way_to(portal);
        let reached = match reached {
            None if referral.is_some() => Some(self.node.reach(&url, referral).await?),
            reached => reached,
        };
        let session = self.node.start_at(&url, key, &questions, reached)?;
        session.logged_in().await?;
        self.remember(portal, &session);
        Ok(session)
    }

    /// Stores what a login has shown about a portal. If the target has moved for good, later logins begin at
    /// its new address (RFC 7143 §11.13.5).
    pub(crate) fn remember(&self, portal: usize, session: &Session) {
        self.portals.prove(portal);
        if let Some(group) = session.portal_group() {
            self.groups().insert(portal, group);
        }
        if let Some(note) = session.path_note() {
            self.report.add_note_once(note);
        }
        if let Some(note) = session.redirection_note() {
            self.report.add_logged_note(note);
        }
        if let Some(address) = session.moved_to() {
            self.moved().insert(portal, address);
        }
    }

    /// Reconnects a lost session with its ISID: at the login, the target ends the lost session (RFC 7143
    /// §6.3.5). Each try goes first to the portal that the session had, and then to all others, because that
    /// portal may be gone for good.
    ///
    /// Errors that may pass are retried ([`Outlook`]), including refusals by a target that listens before its
    /// access list and its units are ready. The unit is identified again before anything is written. Earlier
    /// attempts with `lost` may have failed.
    pub(crate) async fn reopen(
        &self,
        lost: &Lost,
        expected: ExpectedUnitReceiver,
    ) -> Result<Path, NotOpened> {
        let expected = known(expected).await;
        let (why, at, lost) = (lost.why(), lost.at(), lost.path());
        let patience = lost.unit.session().policy().patience;
        let (portal, key) = lost.place();
        let cause = |last_try| WaitCause::Reconnect {
            portal: portal.clone(),
            key,
            lost: why.clone(),
            last_try,
        };
        let wait = self.report.wait(cause(None), Some(patience));
        // The session reports the reason of its end before it has handled all consequences, so this waits for
        // the consequences as well.
        drop(lost.unit.session().closed().await);
        let session = lost.unit.session();
        let ended = LostSession {
            portal: PortalId(lost.portal),
            at: at.into_std(),
            time2wait: session.time2wait(),
            lifetime: lost.lifetime,
        };
        let limits = self.node.options().advanced.reconnect_limits(session.policy());
        let mut reconnect = Reconnect::new(&ended, limits, self.node.entropy(), now());
        let mut race = PortalRace::new(self.node.options().advanced.head_start());
        let mut why_not = why.clone();
        loop {
            match reconnect.step() {
                Step::Try(at) => {
                    wait.set_next_try(Some(at.into()));
                    sleep_until(at.into()).await;
                    wait.set_next_try(None);
                }
                Step::GiveUp { at, is_final } => {
                    sleep_until(at.into()).await;
                    return Err(NotOpened { why: why_not, is_final });
                }
            }
            let tried = self.reopen_at_any(lost, &mut race, &mut reconnect, &expected);
            why_not = match tried.await {
                Ok(path) => return Ok(path.replacing(reconnect.lifetime(now()))),
                Err(error) => error,
            };
            reconnect.end_try(now());
            if let Step::Try(_) = reconnect.step() {
                wait.set_cause(cause(Some(why_not.clone())));
            }
        }
    }

    /// Tries to reach these portals, in this order, except those that are being tried.
    fn run(&self, race: &mut PortalRace, portals: &[usize]) {
        race.add(portals, |portal| self.reach(portal));
    }

    /// Connects to the address to which the target has moved from a portal, or to the portal itself.
    fn reach(&self, portal: usize) -> impl Future<Output = Reached> + Send + use<> {
        let ((url, referral), own) = (self.way_to(portal), self.portals.get(portal));
        let of_own = self.portals.referral(portal);
        let node = self.node.clone();
        async move {
            let reached = node.reach(&url, referral).await;
            match own {
                Some(own) if reached.is_err() && own != url.portal => {
                    Ok(node.reach(&Url { portal: own, ..url }, of_own).await?)
                }
                Some(_) | None => Ok(reached?),
            }
        }
    }

    /// Makes one try: at each portal that has answered, in the order of the answers, until one leads to the
    /// unit. If no portal has failed yet, waits for portals that do not answer. After a failure, waits for them
    /// no longer than [`PortalRace::next_soon`] does.
    ///
    /// # Errors
    /// The error of the first portal that failed.
    async fn reopen_at_any(
        &self,
        lost: &Path,
        race: &mut PortalRace,
        reconnect: &mut Reconnect<HostEntropy>,
        expected: &ExpectedUnit,
    ) -> Result<Path, Error> {
        let portals = reconnect.begin_try(self.portals.len(), now());
        self.run(race, &portals.into_iter().map(|portal| portal.0).collect::<Vec<_>>());
        let mut first = None;
        loop {
            let next = match first {
                Some(_) => race.next_soon().await,
                None => race.next().await,
            };
            let Some((portal, reached)) = next else { break };
            let reopened = match reached {
                Ok(connected) => Box::pin(self.reopen_at(lost, portal, connected, expected)).await,
                Err(error) => Err(error),
            };
            let error = match reopened {
                Ok(path) => {
                    if let Some((portal, error)) = first {
                        self.pass_over(portal, &error);
                    }
                    return Ok(path);
                }
                Err(error) => error,
            };
            if !reconnect.failed_at(PortalId(portal), error.outlook_of_reopening(), now()) {
                return Err(error);
            }
            first.get_or_insert((portal, error));
        }
        Err(first.map_or_else(Error::closed, |(_, error)| error))
    }

    async fn reopen_at(
        &self,
        lost: &Path,
        portal: usize,
        reached: Connected,
        expected: &ExpectedUnit,
    ) -> Result<Path, Error> {
        let key = lost.unit.session().key().next();
        let session = self.log_in(portal, Some(key), Some(reached)).await?;
        let path = self.recognize(session, &lost.unit, portal, expected).await?;
        if let Err(error) = path.unit.join_registration().await {
            // The login may have made the target drop the writes of the lost session, even if the new session
            // is not used.
            settle_by(lost, &path);
            return Err(error);
        }
        Ok(path)
    }

    /// Settles the writes of a lost session, if the reconnect did not. Logs in at any portal of its group, or
    /// at its own portal if the target states no group. Tries at least once, and until the session's time
    /// limit for retries has passed since the loss.
    pub(super) async fn settle(
        &self,
        lost: &Lost,
        expected: ExpectedUnitReceiver,
    ) -> Result<(), Error> {
        let expected = known(expected).await;
        let session = lost.path().unit.session();
        if !session.is_reinstated_by_login() {
            return Err(lost.why().clone());
        }
        let mut back_off = self.node.options().advanced.reconnect_back_off(self.node.entropy());
        loop {
            let Err(error) = self.reinstate(lost, &expected).await else { return Ok(()) };
            if self.portals_to_settle(lost.path()).is_empty() {
                return Err(error);
            }
            match back_off.next_before(lost.deadline().map(Instant::into_std), now()) {
                Some(next) => sleep_until(next.into()).await,
                None => return Err(error),
            }
        }
    }

    /// Logs in once, with the ISID of a lost session, at each portal of its group. Does not log in at portals
    /// of other groups: a session with that ISID may exist there, which the login would end.
    async fn reinstate(&self, lost: &Lost, expected: &ExpectedUnit) -> Result<(), Error> {
        let mut failure = lost.why().clone();
        let mut race = PortalRace::new(self.node.options().advanced.head_start());
        self.run(&mut race, &self.portals_to_settle(lost.path()));
        while let Some((portal, reached)) = race.next().await {
            let reinstated = match reached {
                Ok(connected) => {
                    Box::pin(self.try_reinstate(lost.path(), portal, connected, expected)).await
                }
                Err(error) => Err(error),
            };
            match reinstated {
                Ok(path) if lost.settle_by(&path) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    if let Some(found) = error.other_portal_group() {
                        self.groups().insert(portal, found);
                    }
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    async fn try_reinstate(
        &self,
        lost: &Path,
        portal: usize,
        reached: Connected,
        expected: &ExpectedUnit,
    ) -> Result<Path, Error> {
        let key = lost.unit.session().key().next();
        let questions = Budget::of(self.node.options());
        let url = self.url_at(portal);
        let group = lost.unit.session().portal_group();
        let session = self.node.reinstate_at(&url, key, group, &questions, reached)?;
        session.logged_in().await?;
        self.recognize(session, &lost.unit, portal, expected).await
    }

    /// Returns the path of a new session, if it leads to the unit, and the unit has not changed.
    async fn recognize(
        &self,
        session: Session,
        old: &LogicalUnit,
        portal: usize,
        expected: &ExpectedUnit,
    ) -> Result<Path, Error> {
        let unit = session.logical_unit(old.lun());
        let question = old.state().ask_size();
        let asked_at = old.state().lock().identity.shared_reasons();
        let profile = unit.profile().await?;
        self.check(portal, expected, unit.recognize_by(&expected.name, &profile))?;
        let known = expected.like.profile().await?;
        let is_alike = check_block_size(&known.capacity, &profile.capacity);
        is_alike.map_err(|why| unit.error_of(why))?;
        // Another session may have found another unit after this session queried it. `asked_at` shows that.
        let state = old.state().shared_with_another_session(&profile, asked_at);
        if !expected.name.is_reported() {
            check_size(state.known().size(), profile.capacity.bytes())?;
        }
        state.on_size(question, &profile.capacity);
        state.merge(unit.state());
        Ok(Path::new(session.adopt_unit(old.lun(), state), portal))
    }

    fn check(
        &self,
        portal: usize,
        expected: &ExpectedUnit,
        found: Result<(), Mismatch>,
    ) -> Result<(), Error> {
        let portal = || self.portal_name(portal);
        found.map_err(|mismatch| mismatch_error(mismatch, &expected.name, portal()))
    }

    pub(crate) fn url_at(&self, portal: usize) -> Url {
        self.way_to(portal).0
    }

    /// Returns the current address of a portal, and the peer that has named it if the address must still be
    /// checked. An address to which a target has moved was already checked.
    pub(super) fn way_to(&self, portal: usize) -> (Url, Option<Referral>) {
        let mut url = self.url.clone();
        if let Some(moved) = self.moved().get(&portal) {
            url.portal = moved.clone();
            return (url, None);
        }
        if let Some(own) = self.portals.get(portal) {
            url.portal = own;
        }
        (url, self.portals.referral(portal))
    }

    fn moved(&self) -> MutexGuard<'_, BTreeMap<usize, TargetAddress>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the portals at which a login may settle the writes of a lost session: the portals of its
    /// group, and those of unknown group. If the target states no group, it is only the session's own portal.
    fn portals_to_settle(&self, lost: &Path) -> Vec<usize> {
        let Some(group) = lost.unit.session().portal_group() else { return vec![lost.portal] };
        let may_be = |portal: &usize| self.groups().get(portal).is_none_or(|at| *at == group);
        (0..self.portals.len()).filter(may_be).collect()
    }

    /// Returns the group that a portal led to at the last login there, if the group is known.
    pub(super) fn group_of(&self, portal: usize) -> Option<u16> {
        self.groups().get(&portal).copied()
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<usize, u16>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn portal_name(&self, portal: usize) -> String {
        portal_name(&self.portals.get(portal).unwrap_or_else(|| self.url.portal.clone()))
    }
}

/// Checks the size of a unit without a unique identifier. A unit of another size is not recognized.
fn check_size(before: u64, now: u64) -> Result<(), Error> {
    if now == before { Ok(()) } else { Err(UnitCause::CapacityChanged { before, now }.into()) }
}

async fn known(expected: ExpectedUnitReceiver) -> ExpectedUnit {
    expected.find(Option::clone).await
}

/// Returns whether a further session may be possible at another portal after this error.
fn leads_on(error: &Error) -> bool {
    matches!(error.cause(), Cause::Link(_) | Cause::Unit(UnitCause::UnprovenUnit { .. }))
        || error.is_refused_login() && !error.is_of_credentials()
        || error.refusing_port().is_some()
}

/// Returns whether the reason why a further session was not opened may pass by itself. A target that refuses
/// the session for good will refuse later tries as well.
pub(super) fn may_pass(error: &Error) -> bool {
    if let Cause::Session(SessionCause::Ended(failure)) = error.cause() {
        let is_silent = matches!(failure.cause, SessionError::TimedOut(Timer::Login));
        return is_silent || matches!(failure.cause, SessionError::Transport(_));
    }
    let is_of_unit = matches!(
        error.cause(),
        Cause::Unit(UnitCause::UnprovenUnit { .. } | UnitCause::UnitGone(_))
    );
    is_of_unit
        || error.refusing_port().is_some()
        || matches!(error.cause(), Cause::Link(_))
        || error.is_targets_at_login()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 §11.13.5: an error for which a lost session is retried does not rule out further sessions for
    /// good.
    #[test]
    fn what_may_pass_for_one_may_pass_for_a_further_one() {
        let refused = crate::error::samples::refused_login;
        let unproven = Error::from(UnitCause::UnprovenUnit {
            portal: "192.0.2.1:3260".to_owned(),
            expected: "serial number 1".to_owned(),
            why: "the unit there does not say that name".to_owned(),
        });
        for error in [refused(3, 1), refused(3, 2), unproven] {
            assert!(may_pass(&error), "{error}");
        }
        for detail in 0..12 {
            assert!(!may_pass(&refused(2, detail)));
        }
    }
}
