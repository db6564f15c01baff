//! One request, and the attempts to carry it out.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::history::History;
use super::output::{AttemptId, Failure, RequestId};
use crate::ids::PathId;
use crate::paths::hedge::HedgePolicy;
use crate::paths::{Credit, PathPermit, Requirements};
use crate::reconnect::BackOff;

/// Limits of the requests of a disk.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// What all paths together may have in flight.
    pub total: Credit,
    /// How long a request is retried whose error may pass by itself.
    pub retry_timeout: Duration,
    /// The same after ABORTED COMMAND and damaged data, for which the command itself may be the reason.
    pub aborted_timeout: Duration,
    /// Pauses between retries.
    pub pauses: BackOff,
    /// UNIT ATTENTIONs in a row after which a request fails.
    pub max_attentions: u32,
    /// When a request is hedged.
    pub hedge: HedgePolicy,
    /// Whether requests wait for their class before they take a path.
    pub is_shaped: bool,
}

/// What has to be known of a request to carry it out.
#[derive(Clone, Copy, Debug)]
pub struct RequestSpec {
    /// Bytes that it moves.
    pub len: u64,
    /// Whether it changes blocks of the unit: a second copy of it is aborted when the first one is answered.
    pub writes: bool,
    /// Whether any disk knows the command (READ, WRITE, SYNCHRONIZE CACHE), so that a refusal may be about the port.
    pub is_plain: bool,
    /// Whether the command has a form of ten bytes that says the same.
    pub can_shorten: bool,
    /// Whether the limits of memory have room for a second copy. If not, a request that is stuck does not wait for it:
    /// all others would wait for the end of the first copy.
    pub can_double: bool,
    /// How the request gets its path.
    pub route: Route,
}

impl RequestSpec {
    /// A flush. A unit without a cache that does not know the command never gets one, so a refusal may be about the port.
    pub const FLUSH: Self = Self {
        len: 0,
        writes: false,
        is_plain: true,
        can_shorten: false,
        can_double: false,
        route: Route::Vouching,
    };
}

/// How a request gets its path.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    /// Any path with credit for it.
    Credit,
    /// A flush: the path that can vouch for the earlier writes, by [`Requests::choose`](super::Requests::choose), or a path
    /// without other requests, by [`Requests::prepared`](super::Requests::prepared). It is neither hedged nor shaped, and its
    /// time says nothing of the path.
    Vouching,
}

/// Where a request is.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It waits for the blocks that it changes, by [`Requests::submit_held`](super::Requests::submit_held).
    Held,
    /// It waits for its class.
    Charging {
        since: Instant,
        /// Whether it goes before those that have not had a path yet.
        is_retry: bool,
    },
    /// It is a flush, and waits until it is known whether it needs a path without other requests.
    Preparing,
    /// It is a flush, and waits for the path that can vouch for the earlier writes.
    Choosing,
    /// It waits for a path.
    Queued,
    /// At least one attempt is in flight.
    InFlight,
    /// It waits to be retried. It keeps its place on the path, so that no other request is refused there in its stead.
    Pausing { permit: PathPermit },
}

/// How far a second copy of a request in flight has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hedge {
    /// The request is not hedged, or has two copies in flight.
    None,
    /// It is checked at the time of the request's timer.
    Checked,
    /// It waits for memory.
    Reserving { is_stuck: bool },
    /// It waits for its class.
    Charging { is_stuck: bool },
    /// It waits for a path.
    Queued,
}

#[derive(Clone, Debug)]
pub(super) struct Request<E> {
    pub(super) spec: RequestSpec,
    /// When the caller has asked for it, without the time that it has waited in its class: as much later.
    pub(super) asked: Instant,
    pub(super) state: State,
    pub(super) attempts: SmallVec<[AttemptId; 2]>,
    pub(super) hedge: Hedge,
    /// Most requests succeed at the first attempt.
    pub(super) history: Option<Box<History<E>>>,
    /// UNIT ATTENTIONs since it took its path.
    pub(super) attentions: u32,
    pub(super) is_short: bool,
    /// Whether a flush takes a path without other requests.
    pub(super) wants_own_path: bool,
    /// The end of the pause, or the next check of the hedge.
    pub(super) timer: Option<Instant>,
}

/// An attempt in flight.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// `None` after the request has ended.
    pub(super) request: Option<RequestId>,
    pub(super) permit: PathPermit,
}

/// A request that waits for a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) request: RequestId,
    pub(super) requirements: Requirements,
    pub(super) is_hedge: bool,
}

impl<E> Request<E> {
    pub(super) fn new(spec: RequestSpec, asked: Instant) -> Self {
        Self {
            spec,
            asked,
            state: State::Held,
            attempts: SmallVec::new(),
            hedge: Hedge::None,
            history: None,
            attentions: 0,
            is_short: false,
            wants_own_path: false,
            timer: None,
        }
    }

    pub(super) fn history(&mut self) -> &mut History<E> {
        self.history.get_or_insert_default()
    }

    pub(super) fn requirements(&self) -> Requirements {
        Requirements { avoid: None, is_alone: self.wants_own_path || self.is_suspect() }
    }

    /// Whether the request may be what ends sessions, so that it is sent alone.
    pub(super) fn is_suspect(&self) -> bool {
        self.history.as_deref().is_some_and(History::is_suspect)
    }

    /// Whether a second copy is sent when it is late.
    pub(super) fn is_hedged(&self) -> bool {
        self.spec.route == Route::Credit && !self.requirements().is_alone
    }

    pub(super) fn refusals_left(&self) -> bool {
        self.history.as_deref().is_none_or(History::refusals_left)
    }

    /// The failure of a request that is refused.
    pub(super) fn refused(&mut self, why: E) -> Failure<E> {
        match self.history.as_deref_mut().and_then(History::take_executed) {
            Some(lost) => Failure::NotRetried { lost, why },
            None => Failure::Refused(why),
        }
    }
}

impl Attempt {
    pub(super) const fn path(&self) -> PathId {
        self.permit.path()
    }
}
