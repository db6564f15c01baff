//! Initiator task tags in use (RFC 7143 §11.2.1.8).

use std::collections::BTreeMap;

use crate::conn_id::ConnId;
use crate::convert::before;
use crate::opcode::Opcode;
use crate::pdu::Pdu;

/// The function of a task management request that ends one task (RFC 7143 §11.5.1).
pub(super) const ABORT_TASK: u8 = 1;

/// A tag in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(super) connection: ConnId,
    pub(super) lun: u64,
    pub(super) cmd_sn: u32,
    pub(super) immediate: bool,
    pub(super) scsi: bool,
    /// The tag that a task management request refers to, and its function.
    pub(super) refers: Option<(u32, u8)>,
    /// Number of ABORT TASKs that were sent for the task and that the target has not refused.
    pub(super) aborts: u32,
    /// Connection and `StatSN` of the response that ended the task; `None` while the task is in progress.
    ended: Option<(ConnId, u32)>,
}

impl Tag {
    pub(super) fn new(connection: ConnId, pdu: &Pdu) -> Self {
        let management = pdu.is(Opcode::TaskManagementRequest);
        Self {
            connection,
            lun: pdu.lun(),
            cmd_sn: pdu.cmd_sn(),
            immediate: pdu.immediate(),
            scsi: pdu.is(Opcode::ScsiCommand),
            refers: management.then(|| (pdu.referenced_tag(), pdu.function())),
            aborts: 0,
            ended: None,
        }
    }
}

/// The tags of a session.
#[derive(Debug, Default)]
pub(super) struct Tags(BTreeMap<u32, Tag>);

impl Tags {
    pub(super) fn get(&self, itt: u32) -> Option<&Tag> {
        self.0.get(&itt)
    }

    /// Records that an ABORT TASK was sent for a task.
    pub(super) fn abort(&mut self, itt: u32) {
        if let Some(tag) = self.0.get_mut(&itt) {
            tag.aborts += 1;
        }
    }

    /// Records that the target refused an ABORT TASK: the task continues.
    pub(super) fn abort_refused(&mut self, itt: u32) {
        if let Some(tag) = self.0.get_mut(&itt) {
            tag.aborts = tag.aborts.saturating_sub(1);
        }
    }

    /// Adds a tag that a request uses. Returns `false` if the tag was already in use.
    pub(super) fn begin(&mut self, itt: u32, tag: Tag) -> bool {
        self.0.insert(itt, tag).is_none()
    }

    /// Records that the target ended a task. Its tag is free once the initiator acknowledges the `StatSN` of
    /// the response.
    pub(super) fn end(&mut self, itt: u32, connection: ConnId, stat_sn: u32) {
        if let Some(tag) = self.0.get_mut(&itt) {
            tag.ended.get_or_insert((connection, stat_sn));
        }
    }

    /// Records that the target ended all SCSI tasks of a LUN, or of all LUNs (`None`), with a `CmdSN` before
    /// `cmd_sn`. Other commands may arrive after the function, so they are not ended (RFC 7143 §4.2.3.2).
    pub(super) fn end_all(
        &mut self,
        lun: Option<u64>,
        cmd_sn: u32,
        connection: ConnId,
        stat_sn: u32,
    ) {
        for tag in self.0.values_mut() {
            let is_earlier = tag.immediate || before(tag.cmd_sn, cmd_sn);
            if tag.scsi && is_earlier && lun.is_none_or(|lun| tag.lun == lun) {
                tag.ended.get_or_insert((connection, stat_sn));
            }
        }
    }

    /// Records that the initiator acknowledged every `StatSN` before `exp_stat_sn`, and returns the tags that
    /// become free.
    pub(super) fn acknowledge(&mut self, connection: ConnId, exp_stat_sn: u32) -> Vec<u32> {
        let is_free = |tag: &Tag| {
            tag.ended.is_some_and(|(on, at)| on == connection && before(at, exp_stat_sn))
        };
        let ended = self.0.iter().filter(|(_, tag)| is_free(tag));
        let free: Vec<u32> = ended.map(|(itt, _)| *itt).collect();
        for itt in &free {
            self.0.remove(itt);
        }
        free
    }

    /// Removes the tag of a command that was refused.
    pub(super) fn forget(&mut self, itt: u32) {
        self.0.remove(&itt);
    }

    /// Removes the tags of a closed connection, and returns the `CmdSN`s that their requests consumed.
    pub(super) fn forget_connection(&mut self, connection: ConnId) -> Vec<u32> {
        let gone = self.0.values().filter(|tag| tag.connection == connection);
        let numbers = gone.filter(|tag| !tag.immediate).map(|tag| tag.cmd_sn).collect();
        self.0.retain(|_, tag| tag.connection != connection);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 §4.2.3.2: a reset ends the commands with a lower CmdSN, and leaves a later command in flight.
    #[test]
    fn a_reset_ends_no_command_that_comes_after_it() {
        let (connection, mut tags) = (ConnId(0), Tags::default());
        let mut command = Pdu::new(Opcode::ScsiCommand);
        for (itt, cmd_sn) in [(1, 99), (2, 100), (3, 101)] {
            command.set_u32(24, cmd_sn);
            assert!(tags.begin(itt, Tag::new(connection, &command)));
        }
        tags.end_all(Some(command.lun()), 100, connection, 7);
        assert_eq!(tags.acknowledge(connection, 8), [1]);
    }
}
