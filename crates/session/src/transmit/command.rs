//! Commands that consume a CmdSN, as the command window allows (RFC 7143 §4.2.2.1, §11.3).

use iscsi_pdu::{Cid, CmdSn, Itt, ScsiCommand, StatSn};

use crate::params::Negotiated;
use crate::session::Session;
use crate::task::payload::PayloadSlice;
use crate::task::scsi::ScsiTask;

impl Session {
    /// Puts the oldest waiting command in wire order. The command gets its CmdSN only here.
    pub(super) fn queue_command(&mut self, cid: Cid) {
        let Some(itt) = self.commands.pop(&self.tasks) else { return };
        let Some(task) = self.tasks.get(itt) else { return };
        let known = task.cmd_sn().filter(|_| task.starts_over());
        let cmd_sn = known.unwrap_or_else(|| self.window.take());
        self.tasks.assign(itt, cid, cmd_sn);
        self.queue_scsi_command(cid, itt, cmd_sn);
    }

    pub(super) fn queue_scsi_command(&mut self, cid: Cid, itt: Itt, cmd_sn: CmdSn) {
        let Some(connection) = self.connections.get_mut(cid) else { return };
        let Some(agreed) = connection.agreed() else { return };
        let Some(task) = self.tasks.get_mut(itt).and_then(|task| task.as_scsi_mut()) else {
            return;
        };
        let (command, data) = task.first_pdu(itt, cmd_sn, connection.stat_sn.expected(), agreed);
        let outstanding = task.write.as_ref().map_or(0, |write| write.max_outstanding(agreed));
        if !command.is_final {
            connection.transmitter.burst_begun(itt);
        }
        self.tasks.set_outstanding(itt, outstanding);
        self.stats.data_out_bytes += bytes::Buf::remaining(&data) as u64;
        self.push(cid, command.encode(), data);
    }
}

impl ScsiTask {
    /// Returns the command PDU with its immediate data.
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
        let data = first.map(|first| first.immediate).unwrap_or_default();
        (command, data)
    }
}

/// Returns a length field. Invariant: `submit` has refused lengths that do not fit.
fn length_field(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
