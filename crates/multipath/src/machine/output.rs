//! Outputs of a machine, and identifiers.

use std::fmt;

use iscsi_pdu::scsi::AdditionalSense;

use crate::access::Access;
use crate::ids::PathId;
use crate::requests;
use crate::slab::Key;

/// Identifies a disk: one user of the unit, with separate paths and limits. No identifier is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DiskId(pub(super) u32);

/// Identifies a request. No identifier is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId {
    pub(super) disk: DiskId,
    /// The identifier of the request within its disk.
    pub(super) id: requests::RequestId,
}

/// Identifies one command for one path, which was sent or waits to be sent. No identifier is used twice.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttemptId(pub(super) AttemptKey);

#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum AttemptKey {
    /// An attempt of a request, by its identifier within its disk.
    OfRequest(DiskId, requests::AttemptId),
    /// A command of a flush, or of an identification.
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

/// A command to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// The command of a request.
    Request {
        /// The request.
        request: RequestId,
        /// Whether to use the 10-byte form, because the unit does not support the 16-byte form.
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
    /// The commands that identify the unit. Pass their result to [`identified`](super::Machine::identified).
    Identify,
}

/// Result of a request that has succeeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Done {
    /// This attempt has executed the request.
    By(AttemptId),
    /// All writes that had completed before the flush was submitted are on the medium.
    Flushed,
    /// The unit has flushed, but earlier writes may be lost.
    LostWrites,
}

/// Reason why a request has failed. `E` is the error of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure<E> {
    /// A failure that follows from the attempts of the request, or from a refusal of all requests.
    Request(requests::Failure<E>),
    /// A lost session was writing in the range, and its write may still be executed after the time limit.
    InDoubt,
}

/// An action. Execute the outputs in this order, after the lock around the machine is released.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output<E> {
    /// Send a command over a path. Commands of a path must be sent in the order of these outputs.
    Send {
        /// The attempt. Report the end of the command with this identifier.
        attempt: AttemptId,
        /// The path.
        path: PathId,
        /// The command.
        command: Command,
    },
    /// Abort the command of an attempt. Also report its end.
    Abort(AttemptId),
    /// Withdraw the commands of a path that have not been sent, because the unit may be another one. Report
    /// each as withdrawn.
    Withdraw(PathId),
    /// A request has ended. Attempts of it may still be in flight.
    Completed {
        /// The request.
        request: RequestId,
        /// The result of the request.
        result: Result<Done, Failure<E>>,
    },
    /// Log out the session of a path that was removed: nothing is in flight there, and no flush needs its
    /// reports of resets.
    LogOut(PathId),
    /// Charge the bytes to the traffic class of the disk. When the class admits them, call
    /// [`charged`](super::Machine::charged).
    Charge {
        /// The request.
        request: RequestId,
        /// Number of bytes to charge.
        len: u64,
    },
    /// Reserve memory for a second copy of a read, then call [`reserved`](super::Machine::reserved).
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
    /// Report an event.
    Event(Event<E>),
}

/// An event for the users of the disks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event<E> {
    /// The unit has reported a unit attention over a path.
    Attention(PathId, AdditionalSense),
    /// A flush has failed on the medium.
    FlushFailed(PathId),
    /// A command was retried after the unit had refused it over this path.
    Retried(PathId),
    /// A port has refused a request because of this state.
    PortRefused(PathId, Access),
    /// No port serves the unit to a disk.
    PortNeeded(DiskId),
    /// The path is of no use for this reason, and takes no more requests.
    PathSetAside(PathId, E),
    /// A report about a request that has not ended.
    Report(RequestId, requests::Report<E>),
}
