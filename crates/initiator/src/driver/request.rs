//! Requests on their way from a handle to the driver, and the answers on their way back.

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

/// What handles tell the driver.
#[derive(Debug)]
pub(crate) enum Message {
    Submit(Box<Submission>),
    /// The caller has dropped its future.
    Cancel(RequestId),
    Logout,
    /// So large a share of the segments is lost on the link, by what another session has seen.
    Loss(f64),
    /// Other sessions have found the target slow: each of them has this much write data outstanding, bytes.
    SlowTarget(u64),
    /// What is known of each connection.
    Read(oneshot::Sender<Vec<Reading>>),
}

/// Names a request between a handle and the driver.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct RequestId(pub(crate) u64);

/// A request and what belongs to it until the session has finished with it.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    pub(crate) holds: Holds,
}

/// What goes back when the session has finished with a request, and not before.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(crate) _permit: Arc<Permit>,
    pub(crate) extent: Option<Arc<RangeGuard>>,
    /// Who hears what the unit tells with the answer, whether or not anybody waits for it.
    pub(crate) listener: Option<Listener>,
}

impl Holds {
    /// Whether it must not be sent before the unit has been asked which one it is.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::has_to_wait)
    }
}

/// The answer to a command, and what its unit knows by it.
pub(crate) type Answered = (Completion, Judged);

pub(super) type Sender<T> = oneshot::Sender<Result<T, Error>>;

/// What is asked of the session, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Request {
    Command(Command, Sender<Answered>),
    /// A command whose end the [`Listener`] reports to the requests of a disk, without a channel of its own.
    Attempt(Command),
    Manage(TaskFunction, Lun, Sender<FunctionResponse>),
    SendTargets(Sender<Bytes>),
    /// With data that the target is to send back.
    Ping(Bytes, Sender<Duration>),
}

/// Where the answer to a request under way goes.
#[derive(Debug)]
pub(crate) enum Answer {
    Command(Sender<Answered>),
    /// The [`Listener`] reports it.
    Attempt,
    Manage(Sender<FunctionResponse>),
    SendTargets(Sender<Bytes>),
    Ping(Sender<Duration>),
}

impl Request {
    /// Which command it is; that of another request says nothing.
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Command(command, _) | Self::Attempt(command) => command.cdb.operation(),
            Self::Manage(..) | Self::SendTargets(_) | Self::Ping(..) => Operation::default(),
        }
    }

    /// The bytes that it moves, both ways.
    pub(crate) fn data_len(&self) -> usize {
        let (Self::Command(command, _) | Self::Attempt(command)) = self else { return 0 };
        let written = command.write.as_ref().map_or(0, Payload::len);
        written + command.read.as_ref().map_or(0, ReadBuffer::len)
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            Self::Command(_, answer) => answer.is_closed(),
            // Whoever gives it up says so.
            Self::Attempt(_) => false,
            Self::Manage(_, _, answer) => answer.is_closed(),
            Self::SendTargets(answer) => answer.is_closed(),
            Self::Ping(_, answer) => answer.is_closed(),
        }
    }

    /// Where the answer goes to a request that is not handed to the session.
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

/// How the session ended a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Command(Result<Completion, TaskError>),
    Manage(Result<FunctionResponse, TaskError>),
    SendTargets(Result<Bytes, TaskError>),
    Ping(Result<Duration, TaskError>),
}

impl Outcome {
    /// Whether the session is gone and the target may carry the command out all the same.
    pub(crate) const fn is_unsettled(&self) -> bool {
        matches!(self, Self::Command(Err(TaskError::Session { sent: true, .. })))
    }
}

impl Answer {
    /// The name in the standard of the request, if it is this command where it is one.
    pub(crate) const fn name_of(&self, operation: Operation) -> &'static str {
        match self {
            Self::Command(_) | Self::Attempt => operation.name(),
            Self::Manage(_) => "task management",
            Self::SendTargets(_) => "SendTargets",
            Self::Ping(_) => "NOP-Out",
        }
    }

    /// Gives the caller the outcome. One of another kind than was asked for does not come about;
    /// the caller would see the end of the session. Every command that is answered was judged.
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
            // These two execute nothing, whether or not they came through.
            (Self::SendTargets(answer), Outcome::SendTargets(result)) => {
                drop(answer.send(result.map_err(|why| explain(why).as_not_executed())));
            }
            (Self::Ping(answer), Outcome::Ping(result)) => {
                drop(answer.send(result.map_err(|why| explain(why).as_not_executed())));
            }
            (_, _) => {}
        }
    }

    /// Whether it is a command, for whose end nobody waits any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Self::Command(answer) if answer.is_closed())
    }

    pub(crate) fn fail(self, error: Error) {
        // A caller that no longer listens is no concern of the driver.
        match self {
            Self::Command(answer) => drop(answer.send(Err(error))),
            Self::Attempt => {}
            Self::Manage(answer) => drop(answer.send(Err(error))),
            Self::SendTargets(answer) => drop(answer.send(Err(error.as_not_executed()))),
            Self::Ping(answer) => drop(answer.send(Err(error.as_not_executed()))),
        }
    }
}
