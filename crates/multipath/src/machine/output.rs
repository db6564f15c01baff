//! What a machine wants done, and the names of what it is about.

use std::fmt;

use iscsi_pdu::scsi::AdditionalSense;

use crate::access::Access;
use crate::ids::PathId;
use crate::requests;
use crate::slab::Key;

/// Identifies a disk: a user of the unit, with paths and limits of its own. None is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DiskId(pub(super) u32);

/// Identifies a request. None is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId {
    pub(super) disk: DiskId,
    /// The name that its engine has for it.
    pub(super) id: requests::RequestId,
}

/// Identifies one command that is sent over one path, or waits to be. None is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttemptId(pub(super) AttemptKey);

#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum AttemptKey {
    /// An attempt of a request, by the name that the engine of its disk has for it.
    OfRequest(DiskId, requests::AttemptId),
    /// A command of a flush, or the question which unit it is.
    Question(Key),
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of disk {}", self.id, self.disk.0)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            AttemptKey::OfRequest(disk, id) => write!(f, "{id:?} of disk {}", disk.0),
            AttemptKey::Question(key) => write!(f, "question {key:?}"),
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// The command of a request.
    Request {
        /// The request.
        request: RequestId,
        /// Whether the command goes in ten bytes, because the unit does not know the form of sixteen.
        is_short: bool,
        /// Whether another copy of the request is in flight.
        is_hedge: bool,
    },
    /// SYNCHRONIZE CACHE.
    Flush,
    /// TEST UNIT READY.
    Ready,
    /// MODE SENSE of all pages.
    ModeSense,
    /// The questions by which the unit is recognized. Their answer goes to
    /// [`identified`](super::Machine::identified).
    Identify,
}

/// How a request has ended well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Done {
    /// By this attempt.
    By(AttemptId),
    /// All writes that were answered before the flush was submitted are on the medium.
    Flushed,
    /// The unit has flushed, but earlier writes may be lost.
    LostWrites,
}

/// Why a request has failed. `E` is the error of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure<E> {
    /// As the requests of a disk fail.
    Request(requests::Failure<E>),
    /// A lost session was writing in the range, and nothing has proved for the whole time limit that it will not go on.
    InDoubt,
}

/// Something that is to be done now, in this order, once the machine is not locked any more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output<E> {
    /// Send a command over a path. Commands of a path go in the order of these outputs.
    Send {
        /// The attempt, by which the end is reported.
        attempt: AttemptId,
        /// The path.
        path: PathId,
        /// The command.
        command: Command,
    },
    /// Abort the command of an attempt. Its end is reported all the same.
    Abort(AttemptId),
    /// Take back the commands of a path that have not been sent: the unit may be another one. Each is reported as withdrawn.
    Withdraw(PathId),
    /// A request has ended. Attempts of it may still be in flight.
    Completed {
        /// The request.
        request: RequestId,
        /// Its result.
        result: Result<Done, Failure<E>>,
    },
    /// Log the session of a path out: nothing is in flight there, and no flush needs its session as a witness. The path is gone.
    LogOut(PathId),
    /// Wait for the class of the disk, then call [`charged`](super::Machine::charged).
    Charge {
        /// The request.
        request: RequestId,
        /// Bytes to charge.
        len: u64,
    },
    /// Reserve memory for a second copy of a read, then call [`reserved`](super::Machine::reserved).
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
    /// Something that a user of the disks may want to know.
    Event(Event<E>),
}

/// Something that a user of the disks may want to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event<E> {
    /// The unit has reported a unit attention over a path.
    Attention(PathId, AdditionalSense),
    /// A flush has failed on the medium.
    FlushFailed(PathId),
    /// A command was retried that a path has not taken.
    Retried(PathId),
    /// A port has refused a request because of this state.
    PortRefused(PathId, Access),
    /// No port serves the unit to a disk.
    PortNeeded(DiskId),
    /// The path leads to nothing that is of use, for this reason, and takes nothing more.
    PathSetAside(PathId, E),
    /// Something is reported of a request that does not end.
    Report(RequestId, requests::Report<E>),
}
