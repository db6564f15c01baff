//! Task management by one initiator, and its effect on the commands of the other initiators (SAM-5 §5.6,
//! §7.5, §7.7).

use super::connection::Outgoing;
use super::node::Target;
use super::task::Outcome;
use super::write::WriteTransfer;
use crate::conn_id::ConnId;
use crate::scsi::{Sense, status};

impl Target {
    /// Resets a unit as another initiator does (LOGICAL UNIT RESET, TARGET WARM RESET). The commands of all
    /// sessions for the unit end; each command was either executed before, or is never executed. They end
    /// with TASK ABORTED if the unit's control mode page has TAS set, and otherwise without a status. Each
    /// session then receives the unit attention BUS DEVICE RESET FUNCTION OCCURRED. Caches keep their data;
    /// to lose them, use [`RamDisk::lose_power`](crate::disk::RamDisk::lose_power). This affects one port: if
    /// the unit has several ports, call it for the target of each port.
    pub fn reset_by_another(&mut self, number: u16) {
        self.reset_for_others(number, None);
    }

    /// Applies the reset of a unit by session `own` to all other sessions. `None` is a reset by another
    /// initiator.
    pub(super) fn reset_for_others(&mut self, number: u16, own: Option<u16>) {
        for tsih in self.sessions_with_tasks(own) {
            self.end_tasks_for_another(tsih, number);
        }
        self.give_up_of_unit(number);
        let others = self.sessions.iter_mut().filter(|(tsih, _)| Some(**tsih) != own);
        others.for_each(|(_, session)| session.attentions.add(number, Sense::UNIT_RESET));
    }

    /// Clears the task set of a unit as another initiator does (CLEAR TASK SET). Commands end as in
    /// [`reset_by_another`](Self::reset_by_another). Without TAS, each session that had commands receives the
    /// unit attention COMMANDS CLEARED BY ANOTHER INITIATOR. This affects one port: if the unit has several
    /// ports, call it for the target of each port.
    pub fn clear_by_another(&mut self, number: u16) {
        self.clear_for_others(number, None);
    }

    /// Applies the CLEAR TASK SET of session `own` for a unit to all other sessions. `None` is another
    /// initiator.
    pub(super) fn clear_for_others(&mut self, number: u16, own: Option<u16>) {
        for tsih in self.sessions_with_tasks(own) {
            let had_tasks = self.end_tasks_for_another(tsih, number);
            let is_silent = had_tasks && !self.reports_aborts(number);
            if let Some(session) = self.sessions.get_mut(&tsih).filter(|_| is_silent) {
                session.attentions.add(number, Sense::COMMANDS_CLEARED);
            }
        }
        self.give_up_of_unit(number);
    }

    /// Returns the sessions that have commands in flight, except `own`.
    fn sessions_with_tasks(&self, own: Option<u16>) -> Vec<u16> {
        let busy = self.sessions.iter().filter(|(_, session)| !session.tasks.is_empty());
        busy.map(|(tsih, _)| *tsih).filter(|tsih| Some(*tsih) != own).collect()
    }

    fn reports_aborts(&self, number: u16) -> bool {
        self.config.units.get(&number).is_some_and(|unit| unit.behavior.task_aborted_status)
    }

    /// Ends the tasks of a session for a unit, and returns whether there were any.
    fn end_tasks_for_another(&mut self, tsih: u16, number: u16) -> bool {
        let form = self.config.lun_form;
        let affected = |lun: u64| form.decode(lun) == Some(number);
        let Some(session) = self.sessions.get(&tsih) else { return false };
        let ended = session.tasks.values().filter(|task| affected(task.lun));
        let ended: Vec<_> = ended.map(|task| (task.connection, task.itt)).collect();
        if !self.reports_aborts(number) {
            self.abort_tasks(tsih, affected);
            return !ended.is_empty();
        }
        let connections = session.connections.clone();
        for (id, itt) in &ended {
            let numbered = self.numbered(*id, *itt);
            self.forget(&connections, *itt);
            let task = self.sessions.get_mut(&tsih).and_then(|it| it.tasks.get_mut(itt));
            let Some(task) = task else { continue };
            (task.write, task.outcome) = (None, Outcome::status(status::TASK_ABORTED));
            self.respond(*id, *itt, numbered);
        }
        !ended.is_empty()
    }

    /// Returns the number of R2Ts or Data-Ins that were sent for a task (RFC 7143 §11.4.8).
    fn numbered(&mut self, id: ConnId, itt: u32) -> u32 {
        let delayed =
            self.kept_back.delayed.iter().filter(|it| it.connection == id).map(|it| &it.outgoing);
        let held = self
            .kept_back
            .held
            .iter()
            .filter(|(held, _)| *held == id)
            .map(|(_, outgoing)| outgoing);
        let waiting = delayed.chain(held).chain(&self.connections[id.0].waiting.queue);
        let mut own = waiting.filter(|outgoing| outgoing.itt() == itt);
        let answer = own.find_map(Outgoing::numbered);
        let late = self.late.iter().find(|late| late.connection == id && late.itt == itt);
        let late = late.map(|late| late.work.r2t_count());
        let task = self.session_of(id).and_then(|session| session.tasks.get(&itt));
        let write = task.and_then(|task| task.write.as_ref()).map(WriteTransfer::r2t_count);
        answer.or(late).or(write).unwrap_or(0)
    }
}
