//! Outputs of a session: requests to the driver, results and notices.

use std::time::Duration;

use bytes::Bytes;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{AsyncEvent, Cid, FunctionResponse, Itt, RejectReason, TargetAddress};

use crate::error::{SessionError, TaskError};
use crate::short_queue::ShortQueue;
use crate::task::command::Completion;

/// One action for the driver, or one result or notice for the caller. Each output is returned once, in the
/// order of occurrence.
#[derive(Debug)]
#[non_exhaustive]
pub enum Output {
    /// Open a transport connection, then call `handle_connected` or `handle_disconnected`.
    Connect {
        /// CID: the connection to open.
        cid: Cid,
        /// Address after a redirection; `None` means the portal that the caller knows.
        address: Option<TargetAddress>,
    },
    /// Close the transport connection of this CID; nothing more is read from or written to it.
    Disconnect {
        /// CID: the connection to close.
        cid: Cid,
        /// Whether to reset the connection, so that no buffered byte reaches the target.
        abortive: bool,
    },
    /// The connection has reached full feature phase; `Session::negotiated` returns the agreed parameters.
    LoggedIn {
        /// CID: the connection within the session.
        cid: Cid,
    },
    /// An added connection failed in its login, or one of several connections failed later; the session
    /// continues over the others. The lost connection is closed: [`Output::Disconnect`] was returned before.
    ///
    /// The tasks of the connection end when the target has given them up; after that its CID can be added
    /// again.
    ConnectionLost {
        /// CID: the connection within the session.
        cid: Cid,
        /// The reason for the loss.
        why: SessionError,
    },
    /// A SCSI command has ended.
    Completed {
        /// The tag that `submit` returned.
        itt: Itt,
        /// The completion of the task, or its error.
        result: Result<Completion, TaskError>,
    },
    /// A task management function has ended.
    Managed {
        /// The tag that `manage` returned.
        itt: Itt,
        /// The response of the target.
        result: Result<FunctionResponse, TaskError>,
    },
    /// A SendTargets exchange has ended; the text of all its responses is joined.
    Discovered {
        /// The tag that `send_targets` returned.
        itt: Itt,
        /// The text, for [`crate::decode_send_targets`].
        result: Result<Bytes, TaskError>,
    },
    /// A ping of the caller has ended.
    Ponged {
        /// The tag that `ping` returned.
        itt: Itt,
        /// Time from putting the NOP-Out in wire order to its response.
        result: Result<Duration, TaskError>,
    },
    /// An event that needs no action.
    Notice(Notice),
    /// The session is over: every task has ended, and every connection is closed.
    Ended(Result<(), SessionError>),
}

/// Events that need no action.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The login was redirected (RFC 7143 §11.13.5).
    Redirected {
        /// The new address.
        address: TargetAddress,
        /// Whether the target says that it moved permanently.
        permanent: bool,
    },
    /// The target refused the list of CHAP algorithms, or closed the connection because of it; the login is
    /// retried with only MD5.
    SingleChapAlgorithm,
    /// An asynchronous message (RFC 7143 §11.9).
    AsyncMessage {
        /// The logical unit, if the event concerns one.
        lun: Lun,
        /// The event that the target reports.
        event: AsyncEvent,
        /// Sense data of a SCSI event; otherwise empty.
        sense: Bytes,
    },
    /// The target rejected a PDU that no task waits for (RFC 7143 §11.17).
    Rejected {
        /// The reason that the target reports.
        reason: RejectReason,
    },
    /// The target repeats StatSNs (RFC 7143 §4.2.2.2). A response with an old StatSN is accepted while its
    /// task waits for one. Reported once per connection.
    RepeatedStatSn {
        /// CID: the connection within the session.
        cid: Cid,
    },
    /// The target responds neither to the session's NOP-Out nor to an outstanding command, while its host
    /// acknowledges everything that is sent: it is busy with the command. The session waits until the time
    /// limit of the command.
    Busy {
        /// CID: the connection within the session.
        cid: Cid,
        /// The operation of the command, as the standard names it.
        operation: &'static str,
        /// Time since the last byte of the target.
        silence: Duration,
    },
    /// The target reported a failure of the logout. The connection or session is closed anyway.
    LogoutFailed {
        /// The response code (RFC 7143 §11.15.1).
        response: u8,
    },
}

/// Outputs that are not returned yet, oldest first.
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
