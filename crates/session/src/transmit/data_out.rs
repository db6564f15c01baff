//! Data-Out: the rest of first bursts, and what R2Ts ask for (RFC 7143 §4.2.5.2, §11.7).

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Buf;
use iscsi_pdu::{DataOut, Itt};

use crate::params::Negotiated;
use crate::session::Session;
use crate::task::set::TaskSet;
use crate::task::write::{DataOutPart, WriteTransfer};

impl Session {
    /// The next Data-Out: of first bursts in the order of their commands, else of the oldest R2T.
    pub(super) fn queue_data_out(&mut self, at: usize, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(at) else { return false };
        let Some(agreed) = &connection.agreed else { return false };
        let part = next_of(
            &mut connection.unsolicited,
            &mut self.tasks,
            agreed,
            WriteTransfer::next_unsolicited,
        )
        .or_else(|| {
            next_of(
                &mut connection.solicited,
                &mut self.tasks,
                agreed,
                WriteTransfer::next_solicited,
            )
        });
        let Some((itt, part)) = part else { return false };
        let Some(task) = self.tasks.get(itt).and_then(|task| task.as_scsi()) else { return false };
        let pdu = DataOut {
            is_final: part.is_final,
            lun: task.lun,
            itt,
            ttt: part.ttt,
            exp_stat_sn: connection.exp_stat_sn,
            data_sn: part.data_sn,
            // Invariant: offsets stay below the 32-bit Expected Data Transfer Length.
            buffer_offset: u32::try_from(part.offset).unwrap_or(u32::MAX),
        };
        self.stats.pdus_sent += 1;
        self.stats.data_out_bytes += part.data.remaining() as u64;
        let digests = connection.digests;
        connection.outbox.push_data_out(itt, pdu.encode(), part.data, digests);
        self.renew_abort_of(at, itt, now);
        true
    }
}

/// Cuts the next PDU for the first task of a queue, and takes the task off when its burst is done.
fn next_of(
    queue: &mut VecDeque<Itt>,
    tasks: &mut TaskSet,
    agreed: &Negotiated,
    next: impl Fn(&mut WriteTransfer, &Negotiated) -> Option<DataOutPart>,
) -> Option<(Itt, DataOutPart)> {
    while let Some(itt) = queue.front().copied() {
        let write = tasks.get_mut(itt).and_then(|task| task.as_scsi_mut()?.write.as_mut());
        if let Some(part) = write.and_then(|write| next(write, agreed)) {
            if part.is_final {
                queue.pop_front();
            }
            return Some((itt, part));
        }
        queue.pop_front();
    }
    None
}
