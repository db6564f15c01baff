//! Commands that use a CmdSN up, as the command window allows (RFC 7143 §4.2.2.1, §11.3, §11.10).

use bytes::Bytes;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{CmdSn, Itt, ScsiCommand, StatSn, TextRequest};

use super::in_first_burst;
use crate::Session;
use crate::connection::outbox::whole;
use crate::params::Negotiated;
use crate::task::TaskKind;
use crate::task::payload::{Payload, PayloadSlice};
use crate::task::scsi::ScsiTask;

impl Session {
    /// Puts the oldest waiting command in wire order: only here does it get its CmdSN.
    pub(super) fn queue_command(&mut self, at: usize) -> bool {
        let Some(connection) = self.connections.get(at) else { return false };
        let Some(itt) = self.waiting.front().copied() else { return false };
        if !self.takes_commands() || !self.window.is_open() {
            return false;
        }
        let begins_write =
            self.tasks.get(itt).and_then(|task| task.as_scsi()).is_some_and(ScsiTask::writes);
        if begins_write && (in_first_burst(connection) || self.is_at_write_limit()) {
            return false;
        }
        let cid = connection.cid;
        self.waiting.pop_front();
        let Some(task) = self.tasks.get_mut(itt) else { return true };
        let cmd_sn = self.window.take();
        task.allegiance = Some(cid);
        task.cmd_sn = Some(cmd_sn);
        match task.kind {
            TaskKind::Scsi(_) => self.queue_scsi_command(at, itt, cmd_sn),
            TaskKind::Text(_) => self.queue_text_request(at, itt, cmd_sn),
            TaskKind::Management(_) | TaskKind::Ping(_) | TaskKind::Logout => {}
        }
        true
    }

    /// Whether the write that is first in line has to wait for others to end.
    pub(crate) fn is_at_write_limit(&self) -> bool {
        let owed = self.tasks.owed();
        let first = self.waiting.front().and_then(|itt| self.tasks.get(*itt)?.as_scsi());
        let write = first.and_then(|scsi| scsi.write.as_ref()).filter(|_| owed > 0);
        let agreed = self.negotiated();
        write.zip(agreed).is_some_and(|(write, agreed)| {
            owed.saturating_add(write.most_awaited(agreed)) > self.write_limit
        })
    }

    pub(super) fn queue_scsi_command(&mut self, at: usize, itt: Itt, cmd_sn: CmdSn) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let Some(agreed) = &connection.agreed else { return };
        let Some(task) = self.tasks.get_mut(itt).and_then(|task| task.as_scsi_mut()) else {
            return;
        };
        let (command, data) = task.first_pdu(itt, cmd_sn, connection.exp_stat_sn, agreed);
        let owed = task.write.as_ref().map_or(0, |write| write.most_awaited(agreed));
        if !command.is_final {
            connection.unsolicited.push_back(itt);
        }
        self.tasks.owe(itt, owed);
        self.stats.data_out_bytes += bytes::Buf::remaining(&data) as u64;
        self.push(at, command.encode(), data);
    }

    pub(super) fn queue_text_request(&mut self, at: usize, itt: Itt, cmd_sn: CmdSn) {
        let Some(exp_stat_sn) = self.exp_stat_sn(at) else { return };
        let Some(TaskKind::Text(text)) = self.tasks.get_mut(itt).map(|task| &mut task.kind) else {
            return;
        };
        let request = TextRequest {
            immediate: false,
            is_final: true,
            is_continued: false,
            lun: text.continues.map_or(Lun::ZERO, |(_, lun)| lun),
            itt,
            ttt: text.continues.map(|(ttt, _)| ttt),
            cmd_sn,
            exp_stat_sn,
        };
        let data: Bytes = text.request.clone();
        self.push(at, request.encode().into(), whole(data));
    }
}

impl ScsiTask {
    pub(super) const fn writes(&self) -> bool {
        self.write.is_some()
    }

    /// The command PDU with its immediate data.
    fn first_pdu(
        &mut self,
        itt: Itt,
        cmd_sn: CmdSn,
        exp_stat_sn: StatSn,
        agreed: &Negotiated,
    ) -> (ScsiCommand, PayloadSlice) {
        let first = self.write.as_mut().map(|write| write.begin(agreed));
        let read_len = self.read.as_ref().map(|read| length_field(read.len()));
        let write_len = self.write.as_ref().map(|write| length_field(write.len()));
        let command = ScsiCommand {
            immediate: self.immediate,
            is_final: first.as_ref().is_none_or(|first| first.is_final),
            read: read_len.is_some(),
            write: write_len.is_some(),
            attribute: self.attribute,
            priority: 0,
            lun: self.lun,
            itt,
            expected_data_transfer_length: write_len.or(read_len).unwrap_or_default(),
            cmd_sn,
            exp_stat_sn,
            cdb: self.cdb.clone(),
            bidirectional_read_length: write_len.and(read_len),
        };
        let data = first.map_or_else(|| Payload::default().slice(0, 0), |first| first.immediate);
        (command, data)
    }
}

/// Invariant: `submit` has refused what does not fit.
fn length_field(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
