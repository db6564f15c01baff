//! Commands whose data have arrived and whose execution is delayed, by a fault or by the configuration. They are
//! executed even after their connection is lost, unless their nexus is reinstated or logs out, or a task
//! management function ends them (SAM-5 §5.5, RFC 7143 §6.3.5).

use std::time::{Duration, Instant};

use super::node::Target;
use super::session::{Late, LateWork};
use super::task::Outcome;
use crate::conn_id::ConnId;
use crate::convert::be32;
use crate::disk::scramble;
use crate::scsi;

/// Ends commands that wait to be executed. If the configuration tears commands, some of their blocks are written.
pub(super) fn give_up(
    waiting: &mut Vec<Late>,
    torn_commands: Option<u64>,
    mut is_ended: impl FnMut(&Late) -> bool,
) {
    let ended: Vec<Late> = waiting.extract_if(.., |late| is_ended(late)).collect();
    if let Some(seed) = torn_commands {
        ended.into_iter().for_each(|late| late.tear(seed));
    }
}

impl Late {
    /// Writes some blocks of the command, selected by `seed`: sometimes none or all, otherwise any of them.
    fn tear(self, seed: u64) {
        let Self { unit, cdb, itt, work: LateWork::Write(mut write), .. } = self else { return };
        let drawn = scramble(seed ^ u64::from(itt) << 32 ^ u64::from(be32(&cdb[2..])));
        let of_eight = drawn % 9;
        let is_done = |lba: &u64| scramble(drawn ^ *lba) % 8 < of_eight;
        write.sink.execute_part(is_done);
        scsi::finish_part(&unit, cdb, write.sink.parameters(), is_done);
    }
}

impl Target {
    /// Delays the execution of a command whose data have arrived.
    pub(super) fn put_off(&mut self, id: ConnId, itt: u32, work: LateWork) {
        let Some(session) = self.session_of(id) else { return };
        let nexus = session.nexus.clone();
        let Some(task) = session.tasks.get_mut(&itt) else { return };
        let (lun, cdb, delay) = (task.lun, task.cdb, task.delays.execution);
        let reached = task.unit.take().map(|unit| *unit);
        let number = self.config.lun_form.decode(lun);
        let unit = || number.and_then(|number| self.config.units.get(&number)).cloned();
        let Some(unit) = reached.or_else(unit) else { return };
        let late = Late { nexus, connection: id, itt, lun, cdb, unit, work, delay, due: None };
        self.late.push(late);
    }

    /// Ends commands that wait to be executed.
    pub(super) fn give_up(&mut self, is_ended: impl FnMut(&Late) -> bool) {
        give_up(&mut self.late, self.config.torn_commands, is_ended);
    }

    /// Ends all commands of a unit that wait to be executed.
    pub(super) fn give_up_of_unit(&mut self, number: u16) {
        let form = self.config.lun_form;
        self.give_up(|late| form.decode(late.lun) == Some(number));
    }

    /// Returns the delay of the execution of the next command; zero if its attribute is not SIMPLE, because
    /// then its order is fixed.
    pub(super) fn next_execution_delay(&mut self, is_simple: bool) -> Duration {
        let delays = &self.config.execution_delays;
        if delays.is_empty() || !is_simple {
            return Duration::ZERO;
        }
        let delay = delays[self.counts.put_off % delays.len()];
        self.counts.put_off = self.counts.put_off.wrapping_add(1);
        delay
    }

    /// Executes the commands that are due at `now`, in the order of their due times.
    pub(super) fn execute_late(&mut self, now: Instant) {
        for late in &mut self.late {
            late.due.get_or_insert(now + late.delay);
        }
        let due = |late: &mut Late| late.due.is_some_and(|due| due <= now);
        let mut due: Vec<Late> = self.late.extract_if(.., due).collect();
        due.sort_by_key(|late| late.due);
        for late in due {
            self.execute(late);
        }
    }

    fn execute(&mut self, late: Late) {
        let is_open = !self.connections[late.connection.0].is_closed();
        match late.work {
            LateWork::Read(source) if is_open => {
                self.send_read(late.connection, late.itt, source.fixed());
            }
            LateWork::Read(_) => {}
            LateWork::Write(mut write) => {
                write.sink.execute();
                let parameters = write.sink.parameters();
                let finished =
                    scsi::finish(&late.unit, late.cdb, parameters).map_err(Outcome::check);
                if is_open {
                    self.end_write(late.connection, late.itt, finished, write.r2t_count());
                }
            }
        }
    }

    /// Returns when the next delayed command is executed, whether or not its connection still exists.
    #[must_use]
    pub fn next_execution(&self) -> Option<Instant> {
        self.late.iter().filter_map(|late| late.due).min()
    }

    /// Returns whether a command waits to be executed and its connection is closed.
    #[must_use]
    pub fn has_orphans(&self) -> bool {
        self.late.iter().any(|late| self.connections[late.connection.0].is_closed())
    }

    /// Returns the number of delayed commands that wait for their execution.
    #[must_use]
    pub fn put_off_commands(&self) -> usize {
        self.late.len()
    }
}
