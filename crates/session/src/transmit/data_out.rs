//! Data-Out: the rest of first bursts, and the data that R2Ts request (RFC 7143 §4.2.5.2, §11.7).

use std::time::Instant;

use bytes::Buf;
use iscsi_pdu::{Cid, DataOut, Itt};

use crate::session::Session;
use crate::task::write::DataOutPart;

impl Session {
    pub(super) fn queue_data_out(&mut self, cid: Cid, itt: Itt, part: DataOutPart, now: Instant) {
        let Some(connection) = self.connections.get_mut(cid) else { return };
        let Some(task) = self.tasks.get(itt).and_then(|task| task.as_scsi()) else { return };
        let pdu = DataOut {
            is_final: part.is_final,
            lun: task.lun,
            itt,
            ttt: part.ttt,
            exp_stat_sn: connection.stat_sn.expected(),
            data_sn: part.data_sn,
            // Invariant: offsets stay below the 32-bit Expected Data Transfer Length.
            buffer_offset: u32::try_from(part.offset).unwrap_or(u32::MAX),
        };
        self.stats.pdus_sent += 1;
        self.stats.data_out_bytes += part.data.remaining() as u64;
        connection.push_data_out(itt, pdu.encode(), part.data);
        // An ABORT TASK may wait for the rest of a first burst. Its time limit starts again with each
        // Data-Out of the burst.
        let deadline = now + self.config.timeouts.task_management;
        let requests = connection.transmitter.requests_to_abort(itt, &self.tasks);
        for request in requests.collect::<Vec<_>>() {
            self.tasks.set_deadline(request, Some(deadline));
        }
    }
}
