//! Outputs of the requests of a disk.

use std::fmt;
use std::time::Duration;

use crate::access::Access;
use crate::ids::PathId;
use crate::slab::Key;

/// Identifies a request. No identifier is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub(crate) Key);

/// Identifies one attempt to execute a request over one path. No identifier is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttemptId(pub(crate) Key);

impl RequestId {
    /// Returns a small number that no other request in progress has.
    pub const fn place(self) -> u32 {
        self.0.place()
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {:?}", self.0)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {:?}", self.0)
    }
}

/// An action. Execute the outputs in this order. `E` is the error of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output<E> {
    /// Charge the bytes to the traffic class of the disk. When the class admits them, call
    /// [`charged`](super::Requests::charged).
    Charge {
        /// The request.
        request: RequestId,
        /// Number of bytes to charge.
        len: u64,
        /// Whether the charge is for a second copy.
        is_hedge: bool,
    },
    /// Determine whether a flush needs a path without other requests, then call
    /// [`prepared`](super::Requests::prepared).
    Prepare(RequestId),
    /// Choose the path of a flush by [`choose`](super::Requests::choose), immediately. If there is no path, the
    /// output is repeated when one is added.
    Choose(RequestId),
    /// Reserve memory for a second copy of a read, then call [`reserved`](super::Requests::reserved).
    Reserve {
        /// The request.
        request: RequestId,
        /// Number of bytes of the copy.
        len: u64,
        /// Whether to wait for the memory if it is not free.
        waits: bool,
    },
    /// Release the memory that was reserved for a second copy, which is not sent.
    Unreserve(RequestId),
    /// Send the command of the request over the path.
    Send {
        /// The request.
        request: RequestId,
        /// The attempt. Report the end of the command with this identifier.
        attempt: AttemptId,
        /// The path.
        path: PathId,
        /// Whether to use the 10-byte form, because the unit does not support the 16-byte form.
        is_short: bool,
        /// Whether this is the second copy, for which memory was reserved.
        is_hedge: bool,
    },
    /// Abort the command of an attempt. Also report its end.
    Abort {
        /// The request, which may have ended.
        request: RequestId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// The request has ended. Attempts of it may still be in flight.
    Completed {
        /// The request.
        request: RequestId,
        /// The attempt that has succeeded, or why the request has failed.
        result: Result<AttemptId, Failure<E>>,
    },
    /// The [timer](super::Requests::timer) of a request was set or changed, by a call for another request.
    TimerSet(RequestId),
    /// A command was retried after the unit had refused it over this path.
    Retried(PathId),
    /// A port has refused a request because of this state. Query the states of all ports of the unit.
    PortRefused(PathId, Access),
    /// No port serves the unit. Look for other ports. This output occurs only after
    /// [`set_discovers_ports`](super::Requests::set_discovers_ports).
    PortNeeded,
    /// The path is of no use for this reason, and takes no more requests.
    PathSetAside(PathId, E),
    /// Nothing is in flight on the closed path any more.
    PathDrained(PathId),
    /// A report about a request that has not ended.
    Report(RequestId, Report<E>),
}

/// Reason why a request has failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure<E> {
    /// The error of the last attempt, or of the last attempt after which the request may have been executed.
    Attempt(E),
    /// RESERVATION CONFLICT. Query the unit for more about the reservation.
    Reservation(E),
    /// Each session that carried the request ended, the last ones while nothing else was in flight.
    EndsSessions {
        /// Number of consecutive sessions that ended while nothing else was in flight.
        times: u32,
        /// The error of the last session.
        cause: E,
    },
    /// Requests are refused for this reason, and the unit has not executed this request.
    Refused(E),
    /// Requests are refused, and this request was waiting for a retry. An earlier attempt may have executed it,
    /// for example over a lost session.
    NotRetried {
        /// The error of that attempt.
        lost: E,
        /// The reason of the refusal.
        why: E,
    },
}

/// A report about a request that has not ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Report<E> {
    /// The unit refuses the request with this error. The request is retried for up to this time.
    Held(E, Duration),
    /// The request was in flight on several consecutive lost sessions, and is sent alone from here on.
    SentAlone,
    /// The request was alone on this number of consecutive lost sessions.
    WasAlone(u32, E),
    /// The request is not refused any more: the unit has accepted it, or its session is lost.
    Released,
}
