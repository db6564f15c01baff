//! How a disk gets further sessions, and lost ones back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use iscsi_session::{SessionError, Timer};
use tokio::sync::watch;
use tokio::time::sleep;

use super::identity::{Doubt, Identity};
use super::keeper::Report;
use super::path::Path;
use crate::budget::Budget;
use crate::capacity::Capacity;
use crate::error::Error;
use crate::initiator::Initiator;
use crate::logical_unit::LogicalUnit;
use crate::url::{Url, portal_name};

/// Opens sessions with the unit of a disk.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) initiator: Initiator,
    pub(crate) url: Url,
    /// The portals that lead to the unit, the one of the first session among them.
    pub(crate) portals: Vec<TargetAddress>,
    /// What all sessions may have under way together.
    pub(crate) budget: Budget,
    pub(crate) next_portal: AtomicUsize,
    pub(crate) report: Arc<Report>,
}

/// What a further session must lead to.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) identity: Identity,
    /// The unit through the first session: what is known of it, and what is being written.
    pub(crate) like: LogicalUnit,
}

/// The same, once the first session has found it out: meanwhile others log in.
pub(crate) type Awaited = watch::Receiver<Option<Wanted>>;

/// Tries to open a lost session anew, and the pauses between them: long enough for a target or a
/// line to come back, and for any segment of the old connection to be gone.
const TRIES: u32 = 7;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

impl Opener {
    /// One more session, on the portal whose turn it is, or on another one where that does not
    /// answer, or nothing tells whether it leads to the unit.
    pub(crate) async fn open(&self, wanted: Awaited) -> Result<Path, Error> {
        let count = self.portals.len().max(1);
        let first = self.next_portal.fetch_add(1, Ordering::Relaxed);
        for turn in 1..count {
            let portal = (first + turn) % count;
            match self.open_at(portal, wanted.clone()).await {
                Err(error @ (Error::Connect(_) | Error::UnprovenUnit { .. })) => {
                    if let Some(portal) = self.portals.get(portal) {
                        self.report.pass_over(portal, Some(&error));
                    }
                }
                result => return result,
            }
        }
        self.open_at(first % count, wanted).await
    }

    async fn open_at(&self, portal: usize, wanted: Awaited) -> Result<Path, Error> {
        let session = self.initiator.start_at(&self.url_at(portal), None, &self.budget)?;
        session.logged_in().await?;
        let wanted = known(wanted).await?;
        let state = wanted.like.state().shared_with_another_session();
        let unit = session.adopt_unit(wanted.like.lun(), state);
        let found = wanted.identity.ask(&unit).await?;
        self.check(portal, &wanted, found)?;
        Ok(Path { unit, portal })
    }

    /// Opens a lost session anew, under its old name: at the login the target ends what was left of
    /// it (RFC 7143 §6.3.5). The unit is asked everything again, before anything is written.
    pub(crate) async fn reopen(&self, lost: &Path, wanted: Awaited) -> Result<Path, Error> {
        let wanted = known(wanted).await?;
        let wait = lost.unit.session().negotiated().default_time2wait;
        sleep(Duration::from_secs(wait.into())).await;
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.try_reopen(lost, &wanted).await {
                Err(error) if !is_final(&error) => {
                    tracing::debug!(%error, "a lost session does not come back yet");
                    sleep(pause).await;
                    pause *= 2;
                }
                result => return result,
            }
        }
        self.try_reopen(lost, &wanted).await
    }

    async fn try_reopen(&self, lost: &Path, wanted: &Wanted) -> Result<Path, Error> {
        let Path { unit: old, portal } = lost;
        let isid = Some(old.session().isid());
        let session = self.initiator.start_at(&self.url_at(*portal), isid, &self.budget)?;
        session.logged_in().await?;
        let unit = session.logical_unit(old.lun());
        let profile = unit.profile().await?;
        self.check(*portal, wanted, wanted.identity.recognize(&unit, &profile))?;
        check_size(&wanted.like.profile().await?.capacity, &profile.capacity)?;
        let state = old.state().shared_with_another_session();
        Ok(Path { unit: session.adopt_unit(old.lun(), state), portal: *portal })
    }

    fn check(&self, portal: usize, wanted: &Wanted, found: Result<(), Doubt>) -> Result<(), Error> {
        found.map_err(|doubt| {
            let (portal, expected) = (self.portal_name(portal), wanted.identity.to_string());
            match doubt {
                Doubt::Other(found) => Error::DifferentUnits { portal, expected, found },
                Doubt::Unproven(why) => Error::UnprovenUnit { portal, expected, why },
            }
        })
    }

    fn url_at(&self, portal: usize) -> Url {
        let mut url = self.url.clone();
        if let Some(portal) = self.portals.get(portal) {
            url.portal = portal.clone();
        }
        url
    }

    fn portal_name(&self, portal: usize) -> String {
        portal_name(self.portals.get(portal).unwrap_or(&self.url.portal))
    }
}

/// Blocks of another size would lie elsewhere, also where they are as many bytes.
fn check_size(before: &Capacity, now: &Capacity) -> Result<(), Error> {
    if now.block_size != before.block_size {
        return Err(Error::BlockSizeChanged { before: before.block_size, now: now.block_size });
    }
    let (before, now) = (before.bytes(), now.bytes());
    if now == before { Ok(()) } else { Err(Error::CapacityChanged { before, now }) }
}

async fn known(mut wanted: Awaited) -> Result<Wanted, Error> {
    let known = wanted.wait_for(Option::is_some).await;
    known.ok().and_then(|wanted| wanted.clone()).ok_or(Error::Closed)
}

/// Whether an answer comes from the unit that is there now: that it is not the one that was. It
/// follows a login, so what the lost session left is gone. Whatever else is wrong may pass, a unit that
/// does not say its name as well, and until then the target may still go on with what it was sent.
const fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::DifferentUnits { .. }
            | Error::CapacityChanged { .. }
            | Error::BlockSizeChanged { .. }
    )
}

/// Whether what keeps a further session from being opened may pass by itself; a target that refuses
/// it goes on to.
pub(super) fn may_pass(error: &Error) -> bool {
    if let Error::Session(failure) = error {
        let is_silent = matches!(failure.cause, SessionError::TimedOut(Timer::Login));
        return is_silent || matches!(failure.cause, SessionError::Transport(_));
    }
    matches!(error, Error::Connect(_))
}
