//! Outputs of a session: requests to the driver, results and notices.

use std::time::Duration;

use bytes::Bytes;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{AsyncEvent, Cid, FunctionResponse, Itt, RejectReason, TargetAddress};

use crate::error::{SessionError, TaskError};
use crate::short_queue::ShortQueue;
use crate::task::command::Completion;

/// One thing to do or to pass on. Each is returned once, in the order of occurrence.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// Open a transport connection, then call `handle_connected` or `handle_disconnected`.
    Connect {
        /// The connection it will be.
        cid: Cid,
        /// Where to, after a redirection; `None` is the portal the caller knows.
        address: Option<TargetAddress>,
    },
    /// Close the transport connection of this CID; nothing more is read from or written to it.
    Disconnect {
        /// The connection to close.
        cid: Cid,
        /// Whether to reset it, so that nothing that is still buffered reaches the target.
        abortive: bool,
    },
    /// The connection has reached full feature phase; `Session::negotiated` returns the agreed parameters.
    LoggedIn {
        /// The connection.
        cid: Cid,
    },
    /// An added connection failed in its login, or one of several failed later; the session goes on over the
    /// others. The connection is closed: [`Output::Disconnect`] was returned before.
    ///
    /// The tasks of the connection end as soon as the target has given them up; its CID is free to
    /// be added again after that.
    ConnectionLost {
        /// The connection.
        cid: Cid,
        /// The reason for the loss.
        why: SessionError,
    },
    /// A SCSI command has ended.
    Completed {
        /// The task's tag, as `submit` gave it.
        itt: Itt,
        /// The completion, or the error, of the task.
        result: Result<Completion, TaskError>,
    },
    /// A task management function has ended.
    Managed {
        /// The tag that `manage` gave.
        itt: Itt,
        /// The target's response.
        result: Result<FunctionResponse, TaskError>,
    },
    /// A SendTargets exchange has ended; the text of all its responses is joined.
    Discovered {
        /// The tag that `send_targets` gave.
        itt: Itt,
        /// The records, for [`crate::decode_send_targets`].
        result: Result<Bytes, TaskError>,
    },
    /// A NOP-Out of the caller has been answered.
    Ponged {
        /// The tag that `ping` gave.
        itt: Itt,
        /// Time from the moment it was put in wire order to its answer.
        result: Result<Duration, TaskError>,
    },
    /// Something worth knowing that asks for no action.
    Notice(Notice),
    /// The session is over: every task has been completed, every connection closed.
    Ended(Result<(), SessionError>),
}

/// Something worth knowing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The login was redirected (RFC 7143 §11.13.5).
    Redirected {
        /// Where to.
        address: TargetAddress,
        /// Whether the target says that it moved permanently.
        permanent: bool,
    },
    /// The target refused the list of CHAP algorithms, or closed the connection over it; the login is
    /// tried again with MD5 alone.
    SingleChapAlgorithm,
    /// An asynchronous message (RFC 7143 §11.9).
    AsyncMessage {
        /// The logical unit, for events that concern one.
        lun: Lun,
        /// The event that the target reports.
        event: AsyncEvent,
        /// Sense data of a SCSI event; otherwise empty.
        sense: Bytes,
    },
    /// The target rejected a PDU that no task waits for (RFC 7143 §11.17).
    Rejected {
        /// The reason that the target gives.
        reason: RejectReason,
    },
    /// The target numbers answers like earlier ones (StatSN, RFC 7143 §4.2.2.2). Such an answer is accepted as
    /// long as its task waits for one. Reported once for each connection.
    RepeatedStatSn {
        /// The connection.
        cid: Cid,
    },
    /// The target answers neither the session's NOP-Out nor a command that it has, while its host acknowledges
    /// what is sent: it is busy with the command. The session waits for as long as the command may take.
    Busy {
        /// The connection.
        cid: Cid,
        /// The operation of the command, as the standard names it.
        operation: &'static str,
        /// Time since the last byte of the target.
        silence: Duration,
    },
    /// The target answered a logout with a failure. The connection or session is closed anyway.
    LogoutFailed {
        /// The response code (RFC 7143 §11.15.1).
        response: u8,
    },
}

/// Outputs that were not returned yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outputs(ShortQueue<Output>);

impl Outputs {
    pub(crate) fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.push(Output::Notice(notice));
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
