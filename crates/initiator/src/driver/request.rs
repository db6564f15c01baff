//! Carries requests from a handle to the driver, and their results back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use iscsi_pdu::scsi::{Lun, Operation};
use iscsi_pdu::{FunctionResponse, Itt, TaskFunction};
use iscsi_session::{Command, Completion, Payload, ReadBuffer, SubmitError, TaskError};
use tokio::sync::oneshot;

use crate::driver::measure::reading::Reading;
use crate::error::Error;
use crate::state::budget::Permit;
use crate::state::range_locks::RangeGuard;
use crate::state::unit_state::{Judged, Listener};

/// A message from a handle to the driver.
#[derive(Debug)]
pub(crate) enum Message {
    Submit(Box<Submission>),
    /// Gives up a request: its caller has dropped the future, or the disk no longer needs the attempt.
    Cancel(RequestId),
    Logout,
    /// Share of the segments that is lost on the link, 0 to 1, as another session measured it.
    Loss(f64),
    /// Other sessions found the target slow. The value is the limit of the outstanding write data of each of
    /// these sessions, in bytes.
    SlowTarget(u64),
    /// Asks for a reading of each connection, to be sent to this sender.
    Read(oneshot::Sender<Vec<Reading>>),
}

/// Identifies a request between a handle and the driver.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct RequestId(pub(crate) u64);

/// A request, with the permit and the locked range that it holds until the session has finished with it.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    pub(crate) holds: Holds,
}

/// Resources of a request: its permit and its locked range. They are released when the session has finished with
/// the request, even if the caller stops waiting earlier.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(crate) _permit: Arc<Permit>,
    pub(crate) extent: Option<Arc<RangeGuard>>,
    /// Receives what the response says about the unit, whether or not the caller still waits; `None` for
    /// requests to the session itself.
    pub(crate) listener: Option<Listener>,
}

impl Holds {
    /// Returns whether the command must not be sent before the unit's identity has been checked again.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::has_to_wait)
    }
}

/// The completion of a command, and what it says about the unit.
pub(crate) type Answered = (Completion, Judged);

pub(super) type Sender<T> = oneshot::Sender<Result<T, Error>>;

/// A request to the session, with the sender for its result.
#[derive(Debug)]
pub(crate) enum Request {
    Command(Command, Sender<Answered>),
    /// A command whose result the [`Listener`] reports to the requests of a disk, without a separate channel.
    Attempt(Command),
    Manage(TaskFunction, Lun, Sender<FunctionResponse>),
    SendTargets(Sender<Bytes>),
    /// A ping, with data that the target is to send back.
    Ping(Bytes, Sender<Duration>),
}

/// Destination of the result of a request in flight.
#[derive(Debug)]
pub(crate) enum Answer {
    Command(Sender<Answered>),
    /// The [`Listener`] reports the result.
    Attempt,
    Manage(Sender<FunctionResponse>),
    SendTargets(Sender<Bytes>),
    Ping(Sender<Duration>),
}

impl Request {
    /// Returns the operation of a command; the default for any other request.
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Command(command, _) | Self::Attempt(command) => command.cdb.operation(),
            Self::Manage(..) | Self::SendTargets(_) | Self::Ping(..) => Operation::default(),
        }
    }

    /// Returns the bytes of data that the request moves, in both directions together.
    pub(crate) fn data_len(&self) -> usize {
        let (Self::Command(command, _) | Self::Attempt(command)) = self else { return 0 };
        let written = command.write.as_ref().map_or(0, Payload::len);
        written + command.read.as_ref().map_or(0, ReadBuffer::len)
    }

    /// Returns whether no caller waits for the result any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Command(_, answer) => answer.is_closed(),
            // An attempt has no channel that could be closed: the disk sends `Message::Cancel` to give it up.
            Self::Attempt(_) => false,
            Self::Manage(_, _, answer) => answer.is_closed(),
            Self::SendTargets(answer) => answer.is_closed(),
            Self::Ping(_, answer) => answer.is_closed(),
        }
    }

    /// Returns the destination of the result, for a request that is not handed to the session.
    pub(crate) fn into_answer(self) -> Answer {
        match self {
            Self::Command(_, answer) => Answer::Command(answer),
            Self::Attempt(_) => Answer::Attempt,
            Self::Manage(_, _, answer) => Answer::Manage(answer),
            Self::SendTargets(answer) => Answer::SendTargets(answer),
            Self::Ping(_, answer) => Answer::Ping(answer),
        }
    }

    /// Hands the request to the session.
    pub(crate) fn start(
        self,
        session: &mut iscsi_session::Session,
        now: std::time::Instant,
    ) -> (Result<Itt, SubmitError>, Answer) {
        match self {
            Self::Command(command, answer) => {
                (session.submit(command, now), Answer::Command(answer))
            }
            Self::Attempt(command) => (session.submit(command, now), Answer::Attempt),
            Self::Manage(function, lun, answer) => {
                (session.manage(function, lun, None, now), Answer::Manage(answer))
            }
            Self::SendTargets(answer) => (session.send_targets(now), Answer::SendTargets(answer)),
            Self::Ping(data, answer) => (session.ping_with(data, now), Answer::Ping(answer)),
        }
    }
}

/// Result with which the session ended a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Command(Result<Completion, TaskError>),
    Manage(Result<FunctionResponse, TaskError>),
    SendTargets(Result<Bytes, TaskError>),
    Ping(Result<Duration, TaskError>),
}

impl Outcome {
    /// Returns whether the command was lost with its session and may still be executed by the target.
    pub(crate) const fn is_unsettled(&self) -> bool {
        matches!(self, Self::Command(Err(TaskError::Session { sent: true, .. })))
    }
}

impl Answer {
    /// Returns the request's name in the standard; `operation` is the operation of a command.
    pub(crate) const fn name_of(&self, operation: Operation) -> &'static str {
        match self {
            Self::Command(_) | Self::Attempt => operation.name(),
            Self::Manage(_) => "task management",
            Self::SendTargets(_) => "SendTargets",
            Self::Ping(_) => "NOP-Out",
        }
    }

    /// Sends the outcome to the caller. An outcome always has the kind of its request; with any other kind, the
    /// caller would see the end of the session. `judged` is present for every command that has a response.
    pub(crate) fn give(
        self,
        outcome: Outcome,
        judged: Option<Judged>,
        explain: impl FnOnce(TaskError) -> Error,
    ) {
        match (self, outcome) {
            (Self::Command(answer), Outcome::Command(Ok(completion))) => {
                let judged = judged.ok_or_else(Error::closed);
                drop(answer.send(judged.map(|judged| (completion, judged))));
            }
            (Self::Command(answer), Outcome::Command(Err(why))) => {
                drop(answer.send(Err(explain(why))));
            }
            (Self::Manage(answer), Outcome::Manage(result)) => {
                drop(answer.send(result.map_err(explain)));
            }
            // SendTargets and pings execute nothing on the unit, even if their response is missing.
            (Self::SendTargets(answer), Outcome::SendTargets(result)) => {
                drop(answer.send(result.map_err(|why| explain(why).as_not_executed())));
            }
            (Self::Ping(answer), Outcome::Ping(result)) => {
                drop(answer.send(result.map_err(|why| explain(why).as_not_executed())));
            }
            (_, _) => {}
        }
    }

    /// Returns whether the request is a command that no caller waits for any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Self::Command(answer) if answer.is_closed())
    }

    pub(crate) fn fail(self, error: Error) {
        // A send fails if the caller no longer waits, which is no error here.
        match self {
            Self::Command(answer) => drop(answer.send(Err(error))),
            Self::Attempt => {}
            Self::Manage(answer) => drop(answer.send(Err(error))),
            Self::SendTargets(answer) => drop(answer.send(Err(error.as_not_executed()))),
            Self::Ping(answer) => drop(answer.send(Err(error.as_not_executed()))),
        }
    }
}
