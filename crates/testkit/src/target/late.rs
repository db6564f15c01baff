//! Commands whose data have come, and which a fault has executed later: also after their connection is lost, until
//! their nexus is reinstated or logs out, or a task management function ends them (SAM-5 §5.5, RFC 7143 §6.3.5).

use std::time::Instant;

use super::node::Target;
use super::session::Late;
use super::task::{Outcome, Task};
use super::write::WriteTransfer;
use crate::conn_id::ConnId;
use crate::scsi;

impl Target {
    /// Puts a command off whose data have come.
    pub(super) fn put_off(&mut self, id: ConnId, itt: u32, write: WriteTransfer) {
        let Some(session) = self.session_of(id) else { return };
        let nexus = session.nexus.clone();
        let Some(&Task { lun, cdb, late: delay, .. }) = session.tasks.get(&itt) else {
            return;
        };
        let number = self.config.lun_form.decode(lun);
        let unit = number.and_then(|number| self.config.units.get(&number)).cloned();
        let Some(unit) = unit else { return };
        let late = Late { nexus, connection: id, itt, lun, cdb, unit, write, delay, due: None };
        self.late.push(late);
    }

    /// Executes what is due by now.
    pub(super) fn execute_late(&mut self, now: Instant) {
        for late in &mut self.late {
            late.due.get_or_insert(now + late.delay);
        }
        let due = |late: &mut Late| late.due.is_some_and(|due| due <= now);
        for mut late in self.late.extract_if(.., due).collect::<Vec<_>>() {
            late.write.sink.execute();
            let parameters = late.write.sink.parameters();
            let finished = scsi::finish(&late.unit, late.cdb, parameters).map_err(Outcome::check);
            let is_open = !self.connections[late.connection.0].is_closed();
            if is_open {
                self.end_write(late.connection, late.itt, finished, late.write.r2t_count());
            }
        }
    }

    /// When the next command is executed that was put off, whether or not its connection is still there.
    #[must_use]
    pub fn next_execution(&self) -> Option<Instant> {
        self.late.iter().filter_map(|late| late.due).min()
    }

    /// How many commands wait to be executed that a fault has put off.
    #[must_use]
    pub fn put_off_commands(&self) -> usize {
        self.late.len()
    }
}
