//! Task management (RFC 7143 §11.5, §11.6).

use super::connection::Outgoing;
use super::node::Target;
use crate::conn_id::ConnId;
use crate::convert::before;
use crate::opcode::Opcode;
use crate::pdu::Pdu;
use crate::scsi::End;

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;
const NO_SUCH_LUN: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;

impl Target {
    pub(super) fn task_management(&mut self, id: ConnId, pdu: &Pdu) {
        self.record.functions = self.record.functions.wrapping_add(1);
        let code = match pdu.function() {
            ABORT_TASK => self.abort_task(id, pdu),
            ABORT_TASK_SET => self.abort_unit(id, pdu.lun()),
            CLEAR_TASK_SET => self.clear_unit(id, pdu.lun()),
            LOGICAL_UNIT_RESET => self.reset_unit(id, pdu.lun()),
            TARGET_WARM_RESET | TARGET_COLD_RESET => self.reset_all(id),
            TASK_REASSIGN => NO_REASSIGNMENT,
            _ => NOT_SUPPORTED,
        };
        if !self.config.silent_task_management {
            self.answer_management(id, pdu, code);
        }
        self.deliver_in_order(id);
        if pdu.function() == TARGET_COLD_RESET {
            self.drop_session_of(id);
        }
    }

    fn answer_management(&mut self, id: ConnId, pdu: &Pdu, code: u8) {
        let mut response = Pdu::new(Opcode::TaskManagementResponse);
        response.set(2, &[self.config.task_management_response.unwrap_or(code)]);
        response.set_u32(16, pdu.itt());
        self.enqueue(id, Outgoing::Pdu(response));
    }

    /// Ends one task. If its command never arrived, or waits for its turn, marks its `CmdSN` as used (RFC 7143
    /// §11.5.5).
    fn abort_task(&mut self, id: ConnId, pdu: &Pdu) -> u8 {
        let tag = pdu.referenced_tag();
        let finds_early_tasks = !self.config.early_tasks_unknown;
        let Some(session) = self.session_of(id) else { return NO_SUCH_TASK };
        if session.tasks.remove(&tag).is_some() {
            let connections = session.connections.clone();
            self.forget(&connections, tag);
            return COMPLETE;
        }
        let waiting = session.early_by_tag(tag).is_some();
        let missing = pdu.ref_cmd_sn();
        let unseen = session.in_window(missing) && before(missing, pdu.cmd_sn());
        if !waiting && !unseen || waiting && !finds_early_tasks {
            return NO_SUCH_TASK;
        }
        session.plug(missing);
        COMPLETE
    }

    /// Ends the tasks of a session for a unit.
    fn abort_unit(&mut self, id: ConnId, lun: u64) -> u8 {
        if self.number_of(lun).is_none() {
            return NO_SUCH_LUN;
        }
        self.abort_where(id, |task_lun| task_lun == lun);
        COMPLETE
    }

    /// Ends the tasks of all sessions for a unit.
    fn clear_unit(&mut self, id: ConnId, lun: u64) -> u8 {
        let Some(number) = self.number_of(lun) else { return NO_SUCH_LUN };
        self.end_everywhere(id, number, End::Clear);
        self.abort_unit(id, lun)
    }

    fn reset_unit(&mut self, id: ConnId, lun: u64) -> u8 {
        let Some(number) = self.number_of(lun) else { return NO_SUCH_LUN };
        self.end_everywhere(id, number, End::Reset);
        self.reset_cache(number);
        self.abort_unit(id, lun)
    }

    fn reset_all(&mut self, id: ConnId) -> u8 {
        for number in self.config.units.keys().copied().collect::<Vec<_>>() {
            self.end_everywhere(id, number, End::Reset);
            self.reset_cache(number);
        }
        self.abort_where(id, |_| true);
        COMPLETE
    }

    /// Returns the number of the unit that a LUN field names, if the target has that unit.
    fn number_of(&self, lun: u64) -> Option<u16> {
        let number = self.config.lun_form.decode(lun);
        number.filter(|number| self.config.units.contains_key(number))
    }

    fn abort_where(&mut self, id: ConnId, affected: impl Fn(u64) -> bool) {
        if let Some(connection) = self.connections.get(id.0) {
            self.abort_tasks(connection.session, affected);
        }
    }

    /// Ends the tasks of a session whose LUN field is `affected`, without a response.
    pub(super) fn abort_tasks(&mut self, tsih: u16, affected: impl Fn(u64) -> bool) {
        let Some(session) = self.sessions.get_mut(&tsih) else { return };
        let ended = session.tasks.iter().filter(|(_, task)| affected(task.lun));
        let ended: Vec<u32> = ended.map(|(tag, _)| *tag).collect();
        for tag in &ended {
            session.tasks.remove(tag);
        }
        let connections = session.connections.clone();
        for tag in ended {
            self.forget(&connections, tag);
        }
    }

    /// Discards the PDUs of a task that have not been sent yet, and ends its execution if that is delayed.
    pub(super) fn forget(&mut self, connections: &[ConnId], tag: u32) {
        let keeps =
            |id: ConnId, outgoing: &Outgoing| outgoing.itt() != tag || !connections.contains(&id);
        self.kept_back.held.retain(|(id, outgoing)| keeps(*id, outgoing));
        self.give_up(|late| late.itt == tag && connections.contains(&late.connection));
        self.kept_back.delayed.retain(|waiting| keeps(waiting.connection, &waiting.outgoing));
        for id in connections {
            self.connections[id.0].waiting.queue.retain(|outgoing| outgoing.itt() != tag);
        }
    }

    fn drop_session_of(&mut self, id: ConnId) {
        let Some(session) = self.session_of(id) else { return };
        for other in session.connections.clone() {
            self.close_after_transmit(other);
        }
    }
}
