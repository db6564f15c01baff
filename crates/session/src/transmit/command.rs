//! Commands that use a CmdSN up, as the command window allows (RFC 7143 §4.2.2.1, §11.3).

use iscsi_pdu::{CmdSn, Itt, ScsiCommand, StatSn};

use super::in_first_burst;
use crate::connection::Connection;
use crate::params::Negotiated;
use crate::session::Session;
use crate::task::Task;
use crate::task::payload::{Payload, PayloadSlice};
use crate::task::scsi::ScsiTask;

impl Session {
    /// Puts the oldest waiting command in wire order: only here does it get its CmdSN.
    pub(super) fn queue_command(&mut self, at: usize) -> bool {
        let Some(connection) = self.connections.get(at) else { return false };
        let cid = connection.cid;
        let Some(task) = self.commands.first(&self.tasks) else { return false };
        let lets_out = self.state.sends_commands() && self.has_number_for(task);
        if !lets_out || !self.has_turn(connection, task) {
            return false;
        }
        let Some(itt) = self.commands.pop(&self.tasks) else { return false };
        let known = task.cmd_sn.filter(|_| task.starts_over());
        let cmd_sn = known.unwrap_or_else(|| self.window.take());
        self.tasks.assign(itt, cid, cmd_sn);
        self.queue_scsi_command(at, itt, cmd_sn);
        true
    }

    /// Whether the command window lets the command out. One that starts over has been let out.
    pub(crate) fn has_number_for(&self, task: &Task) -> bool {
        task.starts_over() || self.window.is_open()
    }

    fn has_turn(&self, connection: &Connection, task: &Task) -> bool {
        let begins_write = task.as_scsi().is_some_and(|scsi| scsi.write.is_some());
        connection.takes_commands()
            && self.tasks.load_of(connection.cid).bytes < connection.share
            && !(begins_write && in_first_burst(connection))
            && !self.is_at_write_limit(connection, task)
    }

    /// Whether a write has to wait for others of the connection to end.
    pub(crate) fn is_at_write_limit(&self, connection: &Connection, task: &Task) -> bool {
        let owed = self.tasks.load_of(connection.cid).owed;
        let write = task.as_scsi().and_then(|scsi| scsi.write.as_ref()).filter(|_| owed > 0);
        write.zip(connection.agreed.as_ref()).is_some_and(|(write, agreed)| {
            owed.saturating_add(write.most_awaited(agreed)) > connection.write_limit
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
}

impl ScsiTask {
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
