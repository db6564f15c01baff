//! Defines one path: a unit through one session.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iscsi_multipath::Access;
use iscsi_multipath::reconnect::Lifetime;
use iscsi_pdu::TargetAddress;
use tokio::time::Instant;

use crate::driver::request::RequestId;
use crate::error::Error;
use crate::session::Session;
use crate::state::attempt::{Attempted, Requester};
use crate::state::budget::Permit;
use crate::state::session_key::SessionKey;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::Transfer;
use iscsi_multipath::paths::Credit;

/// One path. Each request has a clone; all clones refer to the same path.
#[derive(Clone, Debug)]
pub(crate) struct Path(Arc<ItlNexus>);

/// A unit through one session: an I_T_L nexus in the terms of SAM.
#[derive(Clone, Debug)]
pub(crate) struct ItlNexus {
    pub(crate) unit: LogicalUnit,
    /// Index of the portal of the session.
    pub(crate) portal: usize,
    pub(crate) lifetime: Lifetime,
    /// Access state with which the port refused to serve the unit when the path was opened.
    pub(crate) refused: Option<Access>,
}

/// Command window assumed for a target that has not stated one.
const USUAL_WINDOW: u32 = 64;
/// Time and number of round trips that [`wait_limit`] allows for a login and its first queries.
const LOGIN: Duration = Duration::from_secs(1);
const LOGIN_TRIPS: u32 = 20;

/// Returns how long a disk waits for a further path, or for the target to name other portals. When the time
/// has passed, the disk continues without them.
pub(crate) fn wait_limit(session: &Session) -> Duration {
    LOGIN + session.of_plan(|plan| plan.link.round_trip()).unwrap_or_default() * LOGIN_TRIPS
}

impl Path {
    /// Returns a path whose session replaces no other one.
    pub(crate) fn new(unit: LogicalUnit, portal: usize) -> Self {
        unit.session().rule_by_class();
        let lifetime = Lifetime::begin(Instant::now().into_std());
        Self(Arc::new(ItlNexus { unit, portal, lifetime, refused: None }))
    }

    /// Returns the path with the access state by which its port refused to serve the unit.
    #[must_use]
    pub(crate) fn refused_by_port(mut self, access: Access) -> Self {
        Arc::make_mut(&mut self.0).refused = Some(access);
        self
    }

    /// Returns the path with the lifetime of a lost session, which it replaces.
    #[must_use]
    pub(crate) fn replacing(mut self, lifetime: Lifetime) -> Self {
        Arc::make_mut(&mut self.0).lifetime = lifetime;
        self
    }

    /// Returns the portal and the key of the session.
    pub(crate) fn place(&self) -> (TargetAddress, SessionKey) {
        let session = self.unit.session();
        // The session of a path has logged in, so it has a portal, and the empty address is never used.
        let unknown = || TargetAddress { host: String::new(), port: 0, portal_group_tag: None };
        (session.portal().cloned().unwrap_or_else(unknown), session.key())
    }

    /// Returns the limits of the session's requests in flight, from its plan.
    pub(crate) fn room(&self) -> Credit {
        let session = self.unit.session();
        let by_plan = session.of_plan(|plan| {
            let writes = plan.io_size.value.saturating_mul(plan.queue_depth.value.into());
            let reads = plan.read_size.value.saturating_mul(plan.read_depth.value.into());
            (writes.max(reads), plan.terms.window.unwrap_or(USUAL_WINDOW))
        });
        let Some((each, requests)) = by_plan else { return Credit::UNLIMITED };
        Credit { bytes: each.saturating_mul(session.connections().open.max(1).into()), requests }
    }
}

impl Deref for Path {
    type Target = ItlNexus;

    fn deref(&self) -> &ItlNexus {
        &self.0
    }
}

impl Path {
    /// Makes the session keep the ranges of its unsettled writes locked when it is lost, until a reconnect or
    /// another login settles them.
    pub(super) fn keep_unsettled(&self) {
        self.unit.session().keep_unsettled();
    }

    /// Returns whether the unit has finished with every write that was sent over the path.
    pub(super) fn is_settled(&self) -> bool {
        self.unit.session().is_settled()
    }

    /// Counts a command that is sent again.
    pub(super) fn count_retry(&self) {
        self.unit.session().count_retry();
    }

    /// Returns the number of commands that were sent again.
    pub(super) fn retries(&self) -> u64 {
        self.unit.session().retries()
    }

    /// Returns the longest write that suits the path now, bytes.
    pub(super) fn longest_write(&self) -> u64 {
        self.unit.session().longest_write()
    }

    /// Returns the longest read that suits the path now, bytes.
    pub(super) fn longest_read(&self) -> u64 {
        self.unit.session().longest_read()
    }

    /// Hands over a transfer to the session, as an attempt of a request. The session reports the attempt's
    /// end to `requester`. If the attempt fails, another path can take the same transfer.
    ///
    /// # Errors
    /// The session does not take the transfer. In this case the session reports no end.
    pub(crate) fn hand_over(
        self,
        transfer: &mut Transfer,
        permit: Arc<Permit>,
        requester: Weak<dyn Requester>,
        attempted: Attempted,
    ) -> Result<SentCommand, Error> {
        let id = self.unit.hand_over(transfer, permit, requester, attempted)?;
        Ok(SentCommand { path: self, id, has_ended: false })
    }

    /// Returns the error of a transfer. After a reservation conflict, adds the unit's report of the
    /// reservation.
    pub(crate) async fn explain(&self, transfer: &Transfer, error: Error) -> Error {
        self.unit.explain(transfer, error).await
    }
}

/// The command of an attempt that a session has taken. Unless the caller calls [`leave`](Self::leave), its
/// drop aborts the command.
#[derive(Debug)]
pub(crate) struct SentCommand {
    path: Path,
    id: RequestId,
    has_ended: bool,
}

impl SentCommand {
    pub(crate) const fn path(&self) -> &Path {
        &self.path
    }

    /// Aborts the command. The session still reports its end.
    pub(crate) fn give_up(&self) {
        self.path.unit.session().give_up(self.id);
    }

    /// Detaches from the command, because the command has ended or continues without its request.
    pub(crate) fn leave(mut self) {
        self.has_ended = true;
    }
}

impl Drop for SentCommand {
    fn drop(&mut self) {
        if !self.has_ended {
            self.give_up();
        }
    }
}
