//! What the requests of a disk want done.

use std::fmt;
use std::time::Duration;

use crate::access::Access;
use crate::ids::PathId;
use crate::slab::Key;

/// Identifies a request. None is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub(crate) Key);

/// Identifies one attempt to carry a request out over one path. None is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttemptId(pub(crate) Key);

impl RequestId {
    /// Returns the number of its place: small, and of no other request that has not ended.
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

/// Something that is to be done now, in this order. `E` is the error of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output<E> {
    /// Wait for the class of the disk, then call [`charged`](super::Requests::charged).
    Charge {
        /// The request.
        request: RequestId,
        /// Bytes to charge.
        len: u64,
        /// Whether it is for a second copy.
        is_hedge: bool,
    },
    /// Find out whether a flush needs a path without other requests, then call
    /// [`prepared`](super::Requests::prepared).
    Prepare(RequestId),
    /// Choose the path of a flush by [`choose`](super::Requests::choose), immediately. Without a path there is another
    /// output of this kind when one is added.
    Choose(RequestId),
    /// Reserve memory for a second copy of a read, then call [`reserved`](super::Requests::reserved).
    Reserve {
        /// The request.
        request: RequestId,
        /// Bytes of the copy.
        len: u64,
        /// Whether to wait for the memory, if it is not free.
        waits: bool,
    },
    /// The memory that was reserved for a second copy is not needed now.
    Unreserve(RequestId),
    /// Send the command of the request over the path.
    Send {
        /// The request.
        request: RequestId,
        /// The attempt, by which its end is reported.
        attempt: AttemptId,
        /// The path.
        path: PathId,
        /// Whether the command goes in ten bytes, because the unit does not know the form of sixteen.
        is_short: bool,
        /// Whether it is the second copy, for which memory was reserved.
        is_hedge: bool,
    },
    /// Abort the command of an attempt. Its end is reported all the same.
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
    /// The [timer](super::Requests::timer) of a request was set, or set to another time, by no call about this request.
    TimerSet(RequestId),
    /// A command was retried that a path has not taken.
    Retried(PathId),
    /// A port has refused a request because of this state: ask the unit for the states of all its ports.
    PortRefused(PathId, Access),
    /// No port serves the unit: look for other ones. Only with [`set_looks_for_ports`](super::Requests::set_looks_for_ports).
    PortNeeded,
    /// The path leads to nothing that is of use, for this reason, and takes nothing more.
    PathSetAside(PathId, E),
    /// Nothing is in flight on the closed path any more.
    PathDrained(PathId),
    /// Something is reported of a request that does not end.
    Report(RequestId, Report<E>),
}

/// Why a request has failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure<E> {
    /// The end of an attempt: the last one, or the last one after which the request may have been executed.
    Attempt(E),
    /// The same of an attempt that met a reservation: the unit can say more about it.
    Reservation(E),
    /// Each session that carried the request ended, the last ones with nothing else in flight.
    EndsSessions {
        /// Number of these.
        times: u32,
        /// The end of the last one.
        cause: E,
    },
    /// Requests are refused, for this reason, and this one was never sent.
    Refused(E),
    /// Requests are refused, for this reason, while this one waited to be retried after a lost session.
    NotRetried {
        /// The end of the session.
        lost: E,
        /// The reason.
        why: E,
    },
}

/// What is reported of a request that does not end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Report<E> {
    /// The unit does not take it, for this reason; it is retried for up to this time.
    Held(E, Duration),
    /// It was in flight on several lost sessions in a row, and is sent alone from now on.
    SentAlone,
    /// It was alone on this number of lost sessions in a row.
    WasAlone(u32, E),
    /// The unit takes it, or its session is lost: it is not held any more.
    Released,
}
