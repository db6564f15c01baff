//! What goes out at once and uses no CmdSN up: answers to pings, pings of our own, task
//! management, text, logout, immediate commands (RFC 7143 §4.2.2.1).

use std::time::Instant;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, CmdSn, Itt, LogoutReason, LogoutRequest, NopOut, TaskFunction};
use iscsi_pdu::{DataSn, TaskManagementRequest, TextRequest, Ttt};

use crate::connection::outbox::whole;
use crate::connection::state::ConnectionState;
use crate::connection::{Connection, Urgent};
use crate::session::Session;
use crate::task::payload::Payload;
use crate::task::{Logout, Management, Task, TaskKind};

impl Session {
    pub(super) fn queue_urgent(&mut self, at: usize, now: Instant) -> bool {
        let Some(connection) = self.connections.get(at) else { return false };
        let waits = |urgent| {
            self.waits_for_burst(connection, urgent) || self.waits_for_text(connection, urgent)
        };
        let due = |urgent: &Urgent| !waits(*urgent);
        let place = connection.urgent.iter().position(due);
        let next = |place| self.connections.get_mut(at)?.urgent.remove(place);
        let Some(urgent) = place.and_then(next) else { return false };
        match urgent {
            Urgent::Task(itt) => self.queue_immediate(at, itt, now),
            Urgent::PingReply { ttt, lun } => self.queue_nop_out(at, None, Some(ttt), lun),
            Urgent::Acknowledgement { lun } => self.queue_nop_out(at, None, None, lun),
        }
        true
    }

    /// Whether a text exchange has to wait for another one to end: there is one at a time on a
    /// connection (RFC 7143 §11.10).
    fn waits_for_text(&self, connection: &Connection, urgent: Urgent) -> bool {
        let Urgent::Task(itt) = urgent else { return false };
        let is_text = |task: &Task| matches!(task.kind, TaskKind::Text(_));
        self.tasks.get(itt).is_some_and(is_text)
            && self.tasks.iter().any(|(other, task)| {
                other != itt && is_text(task) && task.allegiance == Some(connection.cid)
            })
    }

    fn queue_immediate(&mut self, at: usize, itt: Itt, now: Instant) {
        let cmd_sn = self.window.current();
        let Some(cid) = self.connections.get(at).map(|connection| connection.cid) else { return };
        self.tasks.assign(itt, cid, cmd_sn);
        let Some(task) = self.tasks.get_mut(itt) else { return };
        match &mut task.kind {
            TaskKind::Scsi(_) => self.queue_scsi_command(at, itt, cmd_sn),
            TaskKind::Text(_) => self.queue_text_request(at, itt, cmd_sn),
            TaskKind::Ping(ping) => {
                ping.sent_at = Some(now);
                self.queue_nop_out(at, Some(itt), None, Lun::ZERO);
            }
            TaskKind::Management(_) => self.queue_management(at, itt, cmd_sn),
            TaskKind::Logout(logout) => {
                let logout = *logout;
                self.queue_logout(at, itt, logout, cmd_sn);
            }
        }
    }

    fn queue_nop_out(&mut self, at: usize, itt: Option<Itt>, ttt: Option<Ttt>, lun: Lun) {
        let Some(exp_stat_sn) = self.exp_stat_sn(at) else { return };
        let cmd_sn = self.window.current();
        let nop = NopOut { immediate: true, lun, itt, ttt, cmd_sn, exp_stat_sn };
        self.push(at, nop.encode().into(), Payload::default().slice(0, 0));
    }

    /// Immediate in all its requests: nothing that is numbered waits for its turn behind the exchange
    /// (RFC 7143 §11.10).
    fn queue_text_request(&mut self, at: usize, itt: Itt, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(at) else { return };
        let Some(TaskKind::Text(text)) = self.tasks.get_mut(itt).map(|task| &mut task.kind) else {
            return;
        };
        let request = TextRequest {
            immediate: true,
            is_final: true,
            is_continued: false,
            lun: text.continues.map_or(Lun::ZERO, |(_, lun)| lun),
            itt,
            ttt: text.continues.map(|(ttt, _)| ttt),
            cmd_sn,
            exp_stat_sn,
        };
        let data = whole(text.request.clone());
        self.push(at, request.encode().into(), data);
    }

    fn queue_management(&mut self, at: usize, itt: Itt, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(at) else { return };
        let Some(TaskKind::Management(management)) = self.tasks.get(itt).map(|task| &task.kind)
        else {
            return;
        };
        let request = TaskManagementRequest {
            immediate: true,
            function: management.function,
            lun: management.lun,
            itt,
            referenced_task_tag: management.referenced,
            cmd_sn,
            exp_stat_sn,
            ref_cmd_sn: self.ref_cmd_sn(management, cmd_sn),
            exp_data_sn: DataSn::default(),
        };
        let aborted = management.aborts();
        self.push(at, request.encode().into(), Payload::default().slice(0, 0));
        if let Some(aborted) = aborted {
            self.hold_data_of(aborted);
        }
    }

    /// RefCmdSN: the CmdSN of the task to abort, or that of the request itself if the task was
    /// immediate (RFC 7143 §11.5.5).
    fn ref_cmd_sn(&self, management: &Management, cmd_sn: CmdSn) -> CmdSn {
        if management.function != TaskFunction::AbortTask {
            return CmdSn::default();
        }
        if let Some(gap) = management.gap {
            return gap;
        }
        let referenced = management.referenced.and_then(|itt| self.tasks.get(itt));
        let immediate = |task: &Task| task.as_scsi().is_some_and(|scsi| scsi.immediate);
        referenced.filter(|task| !immediate(task)).and_then(|task| task.cmd_sn).unwrap_or(cmd_sn)
    }

    fn queue_logout(&mut self, at: usize, itt: Itt, logout: Logout, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(at) else { return };
        tracing::debug!(?logout, "logging out");
        let (reason, cid) = match logout {
            Logout::Session => (LogoutReason::CloseSession, Cid(0)),
            Logout::Connection(cid) => (LogoutReason::CloseConnection, cid),
        };
        let request = LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn };
        self.push(at, request.encode().into(), Payload::default().slice(0, 0));
        // What is closed sends nothing any more.
        let closed = |c: &&mut Connection| logout == Logout::Session || c.cid == cid;
        for connection in self.connections.iter_mut().filter(closed).filter(|c| c.is_up()) {
            connection.state = ConnectionState::InLogout;
        }
    }
}
