//! One path: a unit through one session.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::reconnect::Lifetime;
use iscsi_multipath::{Access, FlushRank};
use iscsi_session::Completion;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::carrier::Carrier;
use crate::session::Session;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::Transfer;
use iscsi_multipath::paths::Credit;

/// One path. Clones, of which each request has one, are the same path.
#[derive(Clone, Debug)]
pub(crate) struct Path(Arc<ItlNexus>);

/// A unit through one session: an I_T_L nexus, in the words of SAM.
#[derive(Clone, Debug)]
pub(crate) struct ItlNexus {
    pub(crate) unit: LogicalUnit,
    /// Which of the portals it goes to.
    pub(crate) portal: usize,
    pub(crate) lifetime: Lifetime,
    /// Its port did not serve the unit when it was opened.
    pub(crate) refused: Option<Access>,
}

/// The window of a target that has not said.
const USUAL_WINDOW: u32 = 64;
/// Time, and number of round trips, that [`wait_limit`] allows for a login and its first questions.
const LOGIN: Duration = Duration::from_secs(1);
const LOGIN_TRIPS: u32 = 20;

/// How long a disk waits for a further path, or for the names of other portals. It works without them.
pub(crate) fn wait_limit(session: &Session) -> Duration {
    LOGIN + session.of_plan(|plan| plan.link.round_trip()).unwrap_or_default() * LOGIN_TRIPS
}

impl Path {
    /// A path whose session replaces no other one.
    pub(crate) fn new(unit: LogicalUnit, portal: usize) -> Self {
        unit.session().rule_by_class();
        let lifetime = Lifetime::begin(Instant::now().into_std());
        Self(Arc::new(ItlNexus { unit, portal, lifetime, refused: None }))
    }

    /// The same, whose port did not serve the unit when it was opened.
    #[must_use]
    pub(super) fn refused_by_port(mut self, access: Access) -> Self {
        Arc::make_mut(&mut self.0).refused = Some(access);
        self
    }

    /// The same path, whose session replaces a lost one.
    #[must_use]
    pub(super) fn replacing(mut self, lifetime: Lifetime) -> Self {
        Arc::make_mut(&mut self.0).lifetime = lifetime;
        self
    }

    /// What the session may have under way, by its plan.
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

impl Carrier for Path {
    type Answer = Completion;

    fn keep_unsettled(&self) {
        self.unit.session().keep_unsettled();
    }

    fn is_settled(&self) -> bool {
        self.unit.session().is_settled()
    }

    fn may_have_missed(&self) {
        self.unit.state().lock().identity.add_attention();
    }

    fn count_retry(&self) {
        self.unit.session().count_retry();
    }

    fn retries(&self) -> u64 {
        self.unit.session().retries()
    }

    fn brought(answer: &Completion, _room: u64) -> u64 {
        answer.data.len() as u64
    }

    fn longest_write(&self) -> u64 {
        self.unit.session().longest_write()
    }

    fn longest_read(&self) -> u64 {
        self.unit.session().longest_read()
    }

    fn flush_rank(&self) -> Option<FlushRank> {
        let state = self.unit.state();
        Some(state.lock().durability.flush_rank(state.path()))
    }

    async fn carry(&self, transfer: &mut Transfer) -> Result<Completion, Error> {
        Ok(self.unit.attempt(transfer).await?.1)
    }

    async fn explain(&self, transfer: &Transfer, error: Error) -> Error {
        self.unit.explain(transfer, error).await
    }
}
