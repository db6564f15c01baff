//! Unit attentions, and what leads to them (SAM-5 §5.14).

use super::node::Target;
use super::session::Session;
use crate::conn_id::ConnId;
use crate::scsi::{self, Sense, Unit};

impl Target {
    /// Restarts the target as after a loss of power: all connections break, the volatile caches of
    /// its disks are empty, and each nexus meets the unit attention POWER ON, RESET, OR BUS DEVICE
    /// RESET OCCURRED at each unit.
    pub fn restart(&mut self) {
        for unit in self.config.units.values() {
            unit.disk.lose_power();
        }
        self.late.clear();
        for number in 0..self.connections.len() {
            self.close(ConnId(number));
            self.connections[number].outbox.clear();
        }
    }

    /// Puts another unit behind a number, as a storage system does that maps another volume there:
    /// each session meets the unit attention REPORTED LUNS DATA HAS CHANGED. Commands under way go
    /// on with the old unit.
    pub fn replace_unit(&mut self, number: u16, unit: Unit) {
        self.power_losses_told.retain(|(_, told), _| *told != number);
        for session in self.sessions.values_mut() {
            session.know_capacity(number, &unit);
            session.add_attention(number, Sense::LUNS_CHANGED);
        }
        self.config.units.insert(number, unit);
    }

    /// The reset of a unit, if its cache is volatile: what was not flushed is lost, and so are the
    /// commands of all sessions, of which some may have been told that they are done.
    pub(super) fn reset_cache(&mut self, number: u16) {
        let Some(unit) = self.config.units.get(&number) else { return };
        if !unit.disk.is_volatile() {
            return;
        }
        unit.disk.lose_power();
        let form = self.config.lun_form;
        for tsih in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.abort_tasks(tsih, |lun| form.decode(lun) == Some(number));
        }
    }

    /// What a new session has to be told, and what it knows.
    pub(super) fn prepare_attentions(&self, session: &mut Session) {
        for (number, unit) in &self.config.units {
            session.know_capacity(*number, unit);
            if unit.unit_attention {
                session.add_attention(*number, Sense::RESET);
            }
        }
    }

    /// Reports a pending unit attention, once.
    pub(super) fn meet_attention(
        &mut self,
        id: ConnId,
        number: Option<u16>,
        code: u8,
    ) -> Result<(), Sense> {
        let Some(number) = number.filter(|_| !scsi::ignores_unit_attention(code)) else {
            return Ok(());
        };
        let Some(tsih) = self.connections.get(id.0).map(|connection| connection.session) else {
            return Ok(());
        };
        let Some(session) = self.sessions.get_mut(&tsih) else { return Ok(()) };
        if let Some(unit) = self.config.units.get(&number) {
            let losses = unit.disk.power_losses();
            let nexus = &session.nexus;
            let told = |told: &u64| *told == losses;
            if losses > 0 && !self.power_losses_told.get(&(nexus.clone(), number)).is_some_and(told)
            {
                self.power_losses_told.insert((nexus.clone(), number), losses);
                session.know_capacity(number, unit);
                session.attentions.remove(&number);
                return Err(Sense::RESET);
            }
            if session.learns_capacity(number, unit) {
                session.add_attention(number, Sense::CAPACITY_CHANGED);
            }
        }
        session.take_attention(number).map_or(Ok(()), Err)
    }
}
