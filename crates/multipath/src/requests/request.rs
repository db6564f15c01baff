//! Data of one request, and of its attempts.

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
    /// Limits of the requests in flight on all paths together.
    pub total: Credit,
    /// How long a request is retried after an error that may be temporary.
    pub retry_timeout: Duration,
    /// How long a request is retried after ABORTED COMMAND or damaged data. The command itself may cause
    /// these errors, so the time is shorter.
    pub aborted_timeout: Duration,
    /// Pauses between retries.
    pub pauses: BackOff,
    /// Number of consecutive unit attentions after which a request fails.
    pub max_attentions: u32,
    /// When a request is hedged.
    pub hedge: HedgePolicy,
    /// Whether requests wait for their traffic class before they take a path.
    pub is_shaped: bool,
}

/// Facts about a request that its execution depends on.
#[derive(Clone, Copy, Debug)]
pub struct RequestSpec {
    /// Number of bytes that the request moves.
    pub len: u64,
    /// Whether the request changes blocks of the unit. The second copy of such a request is aborted when the
    /// first one has completed.
    pub writes: bool,
    /// Whether every disk supports the command (READ, WRITE, SYNCHRONIZE CACHE), so that a refusal may be about
    /// the port.
    pub is_plain: bool,
    /// Whether the command has an equivalent 10-byte form.
    pub can_shorten: bool,
    /// Whether the memory limits have room for a second copy. If not, a stuck request does not wait for
    /// memory, because all other requests would wait for the end of its first copy.
    pub can_double: bool,
    /// How the request gets its path.
    pub route: Route,
}

impl RequestSpec {
    /// A flush. It is not sent to a unit that has no cache and does not support the command, so a refusal may
    /// be due to the port.
    pub const FLUSH: Self = Self {
        len: 0,
        writes: false,
        is_plain: true,
        can_shorten: false,
        can_double: false,
        route: Route::Vouching,
    };
}

/// The way in which a request gets its path.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Route {
    /// Any path with credit for it.
    Credit,
    /// A flush. Its path is chosen by [`Requests::choose`](super::Requests::choose), preferably one that has
    /// received every report of a reset since the earlier writes; or it takes a path without other requests,
    /// by [`Requests::prepared`](super::Requests::prepared). A flush is neither hedged nor shaped, and its
    /// duration is not used to measure the path.
    Vouching,
}

/// State of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Waiting for its byte range, by [`Requests::submit_held`](super::Requests::submit_held).
    Held,
    /// Waiting for its traffic class.
    Charging {
        since: Instant,
        /// Whether the request goes before requests that have not had a path yet.
        is_retry: bool,
    },
    /// A flush that waits until it is known whether it needs a path without other requests.
    Preparing,
    /// A flush that waits for [`Requests::choose`](super::Requests::choose).
    Choosing,
    /// Waiting for a path.
    Queued,
    /// At least one attempt is in flight.
    InFlight,
    /// Waiting for a retry. The request keeps its place on the path, so that no other request is refused
    /// there instead.
    Pausing { permit: PathPermit },
}

/// State of the second copy of a request in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hedge {
    /// The request is not hedged, or has two copies in flight.
    None,
    /// One copy is in flight. When the timer fires, it is decided whether the request needs a second copy.
    Checked,
    /// Waiting for memory.
    Reserving { is_stuck: bool },
    /// Waiting for the traffic class of the request.
    Charging { is_stuck: bool },
    /// Waiting for a path.
    Queued,
}

#[derive(Clone, Debug)]
pub(super) struct Request<E> {
    pub(super) spec: RequestSpec,
    /// When the caller made the request, plus the time that the request has waited for its traffic class.
    pub(super) asked: Instant,
    pub(super) state: State,
    pub(super) attempts: SmallVec<[AttemptId; 2]>,
    pub(super) hedge: Hedge,
    /// Failed attempts; `None` for most requests, which succeed at the first attempt.
    pub(super) history: Option<Box<History<E>>>,
    /// Number of unit attentions since the request took its path.
    pub(super) attentions: u32,
    pub(super) is_short: bool,
    /// Whether a flush takes a path without other requests.
    pub(super) wants_own_path: bool,
    /// The end of the pause, or the next check for a hedge.
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

    /// Returns whether the request may be the cause of lost sessions, so that it is sent alone.
    pub(super) fn is_suspect(&self) -> bool {
        self.history.as_deref().is_some_and(History::is_suspect)
    }

    /// Returns whether a second copy is sent when the request is late.
    pub(super) fn is_hedged(&self) -> bool {
        self.spec.route == Route::Credit && !self.requirements().is_alone
    }

    pub(super) fn refusals_left(&self) -> bool {
        self.history.as_deref().is_none_or(History::refusals_left)
    }

    /// Returns the failure for a request that is not sent, because the disk refuses all requests.
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
