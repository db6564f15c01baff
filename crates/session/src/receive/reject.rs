//! Rejects (RFC 7143 §11.17): the target refused a PDU and returns its header.

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::{Cid, Header, InitiatorPdu, Itt, Reject, RejectReason, rejected_header};

use crate::error::{SessionError, TaskError};
use crate::output::Notice;
use crate::session::Session;
use crate::task::{Logout, Management, TaskKind};

impl Session {
    pub(super) fn receive_reject(
        &mut self,
        cid: Cid,
        reject: &Reject,
        data: &Bytes,
        now: Instant,
    ) -> Result<(), SessionError> {
        let itt = rejected_header(data).and_then(task_of);
        let counts = match itt {
            Some(itt) => self.take_answer(cid, itt, reject.stat_sn)?,
            None => self.take_stat_sn(cid, reject.stat_sn)?,
        };
        if !counts {
            return Ok(());
        }
        let reason = reject.reason;
        let why = TaskError::Rejected { reason, header: data.clone() };
        match itt.filter(|itt| self.tasks.get(*itt).is_some()) {
            Some(itt) => self.request_rejected(cid, itt, why, now)?,
            // Rejected data is sent again only if the target requests it; the status of the task follows.
            None => self.outputs.notice(Notice::Rejected { reason }),
        }
        if reason == RejectReason::WAITING_FOR_LOGOUT {
            self.logout_requested(now);
        }
        Ok(())
    }

    fn request_rejected(
        &mut self,
        cid: Cid,
        itt: Itt,
        why: TaskError,
        now: Instant,
    ) -> Result<(), SessionError> {
        match self.tasks.get(itt).map(|task| &task.kind) {
            // The ABORT TASK fills the gap that the refused command may have left in CmdSN.
            Some(TaskKind::Scsi(_)) => self.abort_for(itt, why, now),
            Some(TaskKind::Management(management)) => {
                let management = management.clone();
                return self.management_rejected(cid, itt, &management, why, now);
            }
            // The request is immediate, so it leaves no gap in CmdSN: only the exchange fails.
            Some(TaskKind::Text(_) | TaskKind::Ping(_)) => self.end_task(itt, why),
            Some(TaskKind::Logout(Logout::Session)) => self.logged_out(),
            Some(TaskKind::Logout(Logout::Connection(cid))) => {
                let cid = *cid;
                self.tasks.remove(itt);
                self.cleanup_failed(cid);
            }
            None => {}
        }
        Ok(())
    }

    fn management_rejected(
        &mut self,
        cid: Cid,
        itt: Itt,
        management: &Management,
        why: TaskError,
        now: Instant,
    ) -> Result<(), SessionError> {
        if is_too_many(&why) && self.defer_management(cid, itt) {
            return Ok(());
        }
        self.end_task(itt, why);
        self.send_deferred(cid, now);
        self.function_failed(management, now)
    }
}

/// Returns whether the target rejected the request because it has too many immediate requests, so that the
/// request may be sent again later.
const fn is_too_many(why: &TaskError) -> bool {
    matches!(why, TaskError::Rejected { reason: RejectReason::IMMEDIATE_COMMAND_REJECT, .. })
}

/// Returns the task whose first PDU was rejected; `None` for data and for a PDU without a task.
fn task_of(bhs: iscsi_pdu::Bhs) -> Option<Itt> {
    match InitiatorPdu::decode(&Header::from(bhs)).ok()? {
        InitiatorPdu::ScsiCommand(pdu) => Some(pdu.itt),
        InitiatorPdu::TaskManagementRequest(pdu) => Some(pdu.itt),
        InitiatorPdu::TextRequest(pdu) => Some(pdu.itt),
        InitiatorPdu::LogoutRequest(pdu) => Some(pdu.itt),
        InitiatorPdu::NopOut(pdu) => pdu.itt,
        InitiatorPdu::DataOut(_)
        | InitiatorPdu::LoginRequest(_)
        | InitiatorPdu::SnackRequest(_) => None,
    }
}
