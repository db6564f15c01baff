//! Handling of PDUs from the target: one file per kind of PDU, and the dispatch in this file.

mod async_message;
mod data_in;
mod login;
mod logout;
mod nop_in;
mod r2t;
mod reject;
mod scsi_response;
mod task_management;
mod text;

use std::time::Instant;

use iscsi_pdu::{Cid, CmdSn, Itt, StatSn, TargetOpcode, TargetPdu};

use crate::connection::inbox::Received;
use crate::error::{ProtocolError, SessionError};
use crate::output::Notice;
use crate::session::Session;
use crate::task::{Task, TaskKind};

impl Session {
    /// Processes a complete PDU: its window and its data immediately, the rest when all earlier StatSNs have
    /// arrived.
    pub(crate) fn receive(
        &mut self,
        cid: Cid,
        received: Received,
        now: Instant,
    ) -> Result<(), SessionError> {
        if let Some(window) = window_of(&received.pdu) {
            self.window.update(window.0, window.1);
        }
        if !received.intact {
            return self.receive_damaged(cid, &received.pdu, now);
        }
        self.count_data(&received);
        let Some(connection) = self.connections.get_mut(cid) else { return Ok(()) };
        let expected = connection.stat_sn.expected();
        if let Some(found) = used_stat_sn(&received.pdu).filter(|found| found.is_after(expected)) {
            return Ok(connection.stat_sn.keep(found, received, now)?);
        }
        self.act_on(cid, received, now)?;
        self.act_on_early(cid, expected, now)
    }

    /// Processes PDUs that arrived early and whose turn has come, if ExpStatSN has advanced from `before`.
    fn act_on_early(&mut self, cid: Cid, before: StatSn, now: Instant) -> Result<(), SessionError> {
        while let Some(connection) = self.connections.get_mut(cid)
            && let Some(received) = connection.stat_sn.next_kept(before, now)
        {
            self.act_on(cid, received, now)?;
        }
        Ok(())
    }

    /// Processes a PDU whose turn has come.
    fn act_on(&mut self, cid: Cid, received: Received, now: Instant) -> Result<(), SessionError> {
        let data = received.data;
        match &received.pdu {
            TargetPdu::LoginResponse(pdu) => self.receive_login(cid, pdu, &data),
            TargetPdu::ScsiResponse(pdu) => self.receive_scsi_response(cid, pdu, &data, now),
            TargetPdu::DataIn(_) if received.discarded => {
                self.receive_late_data(cid, &received.pdu)
            }
            TargetPdu::DataIn(pdu) => self.receive_data_in(cid, pdu),
            TargetPdu::R2t(pdu) => self.receive_r2t(cid, pdu),
            TargetPdu::TaskManagementResponse(pdu) => self.receive_task_management(cid, pdu, now),
            TargetPdu::TextResponse(pdu) => self.receive_text(cid, pdu, &data),
            TargetPdu::LogoutResponse(pdu) => self.receive_logout(cid, pdu, now),
            TargetPdu::NopIn(pdu) => self.receive_nop_in(cid, pdu, now),
            TargetPdu::AsyncMessage(pdu) => self.receive_async_message(cid, pdu, &data, now),
            TargetPdu::Reject(pdu) => self.receive_reject(cid, pdu, &data, now),
        }
    }

    /// Drops a PDU whose data digest is wrong. A Data-In without status only fails its task, which is aborted.
    /// With any other PDU the connection fails, because a status may be lost (RFC 7143 §7.8).
    fn receive_damaged(
        &mut self,
        cid: Cid,
        pdu: &TargetPdu,
        now: Instant,
    ) -> Result<(), SessionError> {
        match pdu {
            TargetPdu::DataIn(data_in) if data_in.status.is_none() => {
                self.data_in_damaged(cid, data_in, now);
                Ok(())
            }
            TargetPdu::NopIn(_)
            | TargetPdu::ScsiResponse(_)
            | TargetPdu::TaskManagementResponse(_)
            | TargetPdu::LoginResponse(_)
            | TargetPdu::TextResponse(_)
            | TargetPdu::DataIn(_)
            | TargetPdu::LogoutResponse(_)
            | TargetPdu::R2t(_)
            | TargetPdu::AsyncMessage(_)
            | TargetPdu::Reject(_) => {
                Err(ProtocolError::DataDigest { pdu: pdu.opcode().name() }.into())
            }
        }
    }

    /// Counts the StatSN that a PDU consumes. Returns `false` if the StatSN was counted before.
    fn take_stat_sn(&mut self, cid: Cid, found: StatSn) -> Result<bool, SessionError> {
        match self.connections.get_mut(cid) {
            Some(connection) => Ok(connection.stat_sn.take(found)?),
            None => Ok(false),
        }
    }

    /// Counts the StatSN of a response to a task. A response with an old StatSN is accepted while its task
    /// waits: some targets repeat the StatSN of the login, or never increase it. A task accepts no second
    /// response, so nothing is delivered twice. A text exchange accepts several responses, but only the first
    /// one may have an old StatSN.
    fn take_answer(&mut self, cid: Cid, itt: Itt, found: StatSn) -> Result<bool, SessionError> {
        if self.take_stat_sn(cid, found)? {
            return Ok(true);
        }
        let waits = |task: &Task| match &task.kind {
            TaskKind::Text(text) => text.continues.is_none(),
            TaskKind::Scsi(_)
            | TaskKind::Management(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => true,
        };
        let task = self.tasks.get(itt).filter(|task| task.allegiance() == Some(cid));
        if !task.is_some_and(waits) {
            return Ok(false);
        }
        if let Some(connection) = self.connections.get_mut(cid)
            && connection.stat_sn.record_repeat()
        {
            self.outputs.notice(Notice::RepeatedStatSn { cid });
        }
        Ok(true)
    }

    /// Removes from the set the task that a response ends; returns `None` if the task was aborted before.
    ///
    /// `fits` returns whether the response is of the right kind for the task.
    fn take_task(
        &mut self,
        cid: Cid,
        itt: Itt,
        response: TargetOpcode,
        fits: impl Fn(&TaskKind) -> bool,
    ) -> Result<Option<Task>, ProtocolError> {
        match self.tasks.get(itt) {
            Some(task) if task.allegiance() == Some(cid) && fits(&task.kind) => {
                self.stats.tasks_ended += 1;
                Ok(self.tasks.remove(itt))
            }
            None if self.tasks.was_aborted(itt) => Ok(None),
            Some(_) | None => Err(ProtocolError::Task { pdu: response.name(), itt }),
        }
    }
}

/// Returns ExpCmdSN and MaxCmdSN, which every PDU of full feature phase carries (RFC 7143 §4.2.2.1).
const fn window_of(pdu: &TargetPdu) -> Option<(CmdSn, CmdSn)> {
    Some(match pdu {
        TargetPdu::NopIn(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::ScsiResponse(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::TaskManagementResponse(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::TextResponse(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::DataIn(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::LogoutResponse(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::R2t(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::AsyncMessage(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        TargetPdu::Reject(pdu) => (pdu.exp_cmd_sn, pdu.max_cmd_sn),
        // Only the window in the last Login Response is valid, and the login code applies it.
        TargetPdu::LoginResponse(_) => return None,
    })
}

/// Returns the StatSN that a PDU of full feature phase consumes, if any (RFC 7143 §4.2.2.2).
fn used_stat_sn(pdu: &TargetPdu) -> Option<StatSn> {
    match pdu {
        TargetPdu::NopIn(pdu) => pdu.itt.map(|_| pdu.stat_sn),
        TargetPdu::ScsiResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::TaskManagementResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::TextResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::DataIn(pdu) => pdu.status.as_ref().map(|status| status.stat_sn),
        TargetPdu::LogoutResponse(pdu) => Some(pdu.stat_sn),
        TargetPdu::AsyncMessage(pdu) => Some(pdu.stat_sn),
        TargetPdu::Reject(pdu) => Some(pdu.stat_sn),
        // An R2T carries the next StatSN without consuming it. The login counts the StatSNs of its responses.
        TargetPdu::R2t(_) | TargetPdu::LoginResponse(_) => None,
    }
}
