//! PDUs that are sent immediately and consume no CmdSN: responses to pings, pings of the initiator, task
//! management, text, logout, immediate commands (RFC 7143 §4.2.2.1).

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, CmdSn, Itt, LogoutReason, LogoutRequest, NopOut, TaskFunction};
use iscsi_pdu::{DataSn, StatSn, TaskManagementRequest, TextRequest, Ttt};

use crate::connection::Connection;
use crate::connection::outbox::whole;
use crate::connection::transmitter::Urgent;
use crate::session::Session;
use crate::task::payload::PayloadSlice;
use crate::task::{Logout, Management, Task, TaskKind};

impl Session {
    pub(super) fn queue_urgent(&mut self, cid: Cid, urgent: Urgent, now: Instant) {
        match urgent {
            Urgent::Task(itt) => self.queue_immediate(cid, itt, now),
            Urgent::PingReply { ttt, lun } => {
                self.queue_nop_out(cid, None, Some(ttt), lun, Bytes::new());
            }
            Urgent::Acknowledgement { lun } => {
                self.queue_nop_out(cid, None, None, lun, Bytes::new());
            }
        }
    }

    fn queue_immediate(&mut self, cid: Cid, itt: Itt, now: Instant) {
        let cmd_sn = self.window.current();
        self.tasks.assign(itt, cid, cmd_sn);
        let Some(task) = self.tasks.get_mut(itt) else { return };
        match &mut task.kind {
            TaskKind::Scsi(_) => self.queue_scsi_command(cid, itt, cmd_sn),
            TaskKind::Text(_) => self.queue_text_request(cid, itt, cmd_sn),
            TaskKind::Ping(ping) => {
                ping.sent_at = Some(now);
                let data = ping.data.clone();
                self.queue_nop_out(cid, Some(itt), None, Lun::ZERO, data);
            }
            TaskKind::Management(_) => self.queue_management(cid, itt, cmd_sn),
            TaskKind::Logout(logout) => {
                let logout = *logout;
                self.queue_logout(cid, itt, logout, cmd_sn);
            }
        }
    }

    fn exp_stat_sn(&self, cid: Cid) -> Option<StatSn> {
        self.connections.get(cid).map(|connection| connection.stat_sn.expected())
    }

    fn queue_nop_out(
        &mut self,
        cid: Cid,
        itt: Option<Itt>,
        ttt: Option<Ttt>,
        lun: Lun,
        mut data: Bytes,
    ) {
        let Some(exp_stat_sn) = self.exp_stat_sn(cid) else { return };
        let limit = self.negotiated_on(cid).map_or(0, |to| to.target_max_recv_data_segment_length);
        data.truncate(limit as usize);
        let cmd_sn = self.window.current();
        let nop = NopOut { immediate: true, lun, itt, ttt, cmd_sn, exp_stat_sn };
        let data = if data.is_empty() { PayloadSlice::default() } else { whole(data) };
        self.push(cid, nop.encode().into(), data);
    }

    /// Queues a text request. All requests of an exchange are immediate, so that no numbered command waits for
    /// the exchange (RFC 7143 §11.10).
    fn queue_text_request(&mut self, cid: Cid, itt: Itt, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(cid) else { return };
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
        self.push(cid, request.encode().into(), data);
    }

    fn queue_management(&mut self, cid: Cid, itt: Itt, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(cid) else { return };
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
        self.push(cid, request.encode().into(), PayloadSlice::default());
        if let Some(aborted) = aborted {
            self.hold_data_of(aborted);
        }
    }

    /// Returns RefCmdSN: the CmdSN of the task to abort, or the CmdSN of the request itself if the task was
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
        referenced.filter(|task| !immediate(task)).and_then(|task| task.cmd_sn()).unwrap_or(cmd_sn)
    }

    fn queue_logout(&mut self, over: Cid, itt: Itt, logout: Logout, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(over) else { return };
        tracing::debug!(?logout, "logging out");
        let (reason, cid) = match logout {
            Logout::Session => (LogoutReason::CloseSession, Cid(0)),
            Logout::Connection(cid) => (LogoutReason::CloseConnection, cid),
        };
        let request = LogoutRequest { immediate: true, reason, itt, cid, cmd_sn, exp_stat_sn };
        self.push(over, request.encode().into(), PayloadSlice::default());
        // The connections that the logout closes send nothing after it.
        let closed = |c: &&mut Connection| logout == Logout::Session || c.cid() == cid;
        self.connections.iter_mut().filter(closed).for_each(Connection::logout_sent);
    }
}
