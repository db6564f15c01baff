//! Unit attentions, and the events that cause them (SAM-5 §5.14).

use super::node::Target;
use super::session::{Nexus, Session};
use super::task::Outcome;
use crate::conn_id::ConnId;
use crate::scsi::{self, AccessState, Sense, TargetPort, Unit};

impl Target {
    /// Restarts the target as after a loss of power: all connections break, the volatile caches of its disks
    /// are empty, and each nexus receives the unit attention POWER ON, RESET, OR BUS DEVICE RESET OCCURRED
    /// from each unit.
    pub fn restart(&mut self) {
        self.give_up(|_| true);
        for unit in self.config.units.values() {
            unit.disk.lose_power();
            unit.reservations.lose_power();
        }
        self.drop_connections();
    }

    /// Breaks all connections, as when the target program restarts. Commands that wait to be executed end; the
    /// disks keep their caches.
    pub fn drop_connections(&mut self) {
        self.give_up(|_| true);
        for number in 0..self.connections.len() {
            self.close(ConnId(number));
            self.connections[number].outbox.clear();
        }
    }

    /// Replaces the unit of a number, like a storage system that maps another volume to this number. Each
    /// session receives the unit attention REPORTED LUNS DATA HAS CHANGED. Commands in flight continue on the
    /// old unit.
    pub fn replace_unit(&mut self, number: u16, unit: Unit) {
        self.replace_unit_with_attention(number, unit, Sense::LUNS_CHANGED);
    }

    /// Replaces a unit like [`replace_unit`](Self::replace_unit), with another unit attention.
    pub fn replace_unit_with_attention(&mut self, number: u16, unit: Unit, attention: Sense) {
        let form = self.config.lun_form;
        self.reported.power_losses.retain(|(_, told), _| *told != number);
        for session in self.sessions.values_mut() {
            session.attentions.know(number, &unit);
            session.attentions.add(number, attention);
            if let Some(old) = self.config.units.get(&number) {
                let tasks = session.tasks.values_mut();
                for task in tasks.filter(|task| form.decode(task.lun) == Some(number)) {
                    task.unit.get_or_insert_with(|| Box::new(old.clone()));
                }
            }
        }
        self.config.units.insert(number, unit);
    }

    /// Sets the access state of the ports of the target. Each session receives the unit attention ASYMMETRIC
    /// ACCESS STATE CHANGED, except for a change to [`AccessState::Transitioning`]. Commands in flight continue.
    pub fn set_access(&mut self, state: AccessState) {
        if std::mem::replace(&mut self.config.access, state) == state
            || state == AccessState::Transitioning
        {
            return;
        }
        for session in self.sessions.values_mut() {
            for number in self.config.units.keys() {
                session.attentions.add(*number, Sense::ACCESS_STATE_CHANGED);
            }
        }
    }

    /// Returns the access state of the target. It is the configured state if that is not the default, else
    /// the state of the target's port group.
    pub(super) fn access(&self) -> AccessState {
        let group = self.config.port.as_ref().map(TargetPort::state);
        group.filter(|_| self.config.access == AccessState::default()).unwrap_or(self.config.access)
    }

    /// Executes SET TARGET PORT GROUPS. All sessions except the one that sent it receive a unit attention (SPC-4
    /// §6.45).
    pub(super) fn set_port_groups(&mut self, id: ConnId, parameters: &[u8]) -> Result<(), Outcome> {
        let Some(port) = &self.config.port else { return Ok(()) };
        let changes = port.groups.set(parameters).map_err(Outcome::check)?;
        if let Some(session) = self.session_of(id) {
            session.attentions.known_changes += changes;
        }
        Ok(())
    }

    /// Queues unit attentions for the changes of the array's ports that a session does not know yet.
    fn queue_port_changes(&mut self, id: ConnId) {
        let Some(changes) = self.config.port.as_ref().map(|port| port.groups.changes()) else {
            return;
        };
        let numbers: Vec<u16> = self.config.units.keys().copied().collect();
        let Some(session) = self.session_of(id) else { return };
        if std::mem::replace(&mut session.attentions.known_changes, changes) != changes {
            for number in numbers {
                session.attentions.add(number, Sense::ACCESS_STATE_CHANGED);
            }
        }
    }

    /// Applies a reset of a unit to its cache, if the cache is volatile: writes that were not flushed are lost,
    /// even if their status was GOOD, and the commands of all sessions end.
    pub(super) fn reset_cache(&mut self, number: u16) {
        let Some(unit) = self.config.units.get(&number) else { return };
        if !unit.disk.is_volatile() {
            return;
        }
        unit.disk.lose_cached(0..unit.disk.blocks());
        unit.disk.lose_power();
        let form = self.config.lun_form;
        for tsih in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.abort_tasks(tsih, |lun| form.decode(lun) == Some(number));
        }
    }

    /// Initializes the unit attentions of a new session, and the changes that the session already knows.
    pub(super) fn prepare_attentions(&mut self, session: &mut Session) {
        session.attentions.known_changes =
            self.config.port.as_ref().map_or(0, |port| port.groups.changes());
        let registrant = self.registrant(session);
        for (number, unit) in &self.config.units {
            session.attentions.know(*number, unit);
            unit.reservations.forget_attentions(&registrant);
            if unit.behavior.nexus_per_session {
                unit.reservations.orphan(&registrant);
            }
            let nexus = (session.nexus.clone(), *number);
            let told = self.reported.deferred_errors.entry(nexus);
            told.or_insert_with(|| unit.disk.deferred_errors());
            if unit.unit_attention {
                session.attentions.add(*number, Sense::RESET);
            }
        }
    }

    /// Returns whether a command will end with a unit attention once all its data have arrived.
    #[must_use]
    pub fn withholds_attention(&self) -> bool {
        let tasks = self.sessions.values().flat_map(|session| session.tasks.values());
        let mut senses =
            tasks.filter(|task| task.write.is_some()).filter_map(|it| it.outcome.sense);
        senses.any(|sense| sense.is_unit_attention())
    }

    /// Removes the condition that the unit must report to the nexus before the next command, and returns it as
    /// an error: a unit attention, or a deferred error.
    pub(super) fn meet_attention(
        &mut self,
        id: ConnId,
        number: Option<u16>,
        code: u8,
    ) -> Result<(), Sense> {
        let Some(number) = number.filter(|_| !scsi::ignores_unit_attention(code)) else {
            return Ok(());
        };
        self.queue_port_changes(id);
        let Some(tsih) = self.connections.get(id.0).map(|connection| connection.session) else {
            return Ok(());
        };
        let Some(session) = self.sessions.get_mut(&tsih) else { return Ok(()) };
        if let Some(unit) = self.config.units.get(&number) {
            let losses = unit.disk.power_losses();
            let nexus = &session.nexus;
            let told = |told: &u64| *told == losses;
            if losses > 0
                && !self.reported.power_losses.get(&(nexus.clone(), number)).is_some_and(told)
            {
                self.reported.power_losses.insert((nexus.clone(), number), losses);
                session.attentions.know(number, unit);
                session.attentions.waiting.remove(&number);
                let errors = unit.disk.deferred_errors();
                self.reported.deferred_errors.insert((session.nexus.clone(), number), errors);
                return Err(Sense::RESET);
            }
            session.attentions.queue_unit_changes(number, unit);
        }
        session.attentions.take(number).map_or(Ok(()), Err)?;
        let nexus = session.nexus.clone();
        self.meet_reservation_attention(id, number)?;
        self.meet_deferred_error(nexus, number)
    }

    /// Returns the deferred error of a cached write that has failed. Each nexus receives it once (SPC-4
    /// §4.5.7).
    fn meet_deferred_error(&mut self, nexus: Nexus, number: u16) -> Result<(), Sense> {
        let unit = self.config.units.get(&number);
        let errors = unit.map_or(0, |unit| unit.disk.deferred_errors());
        if errors == 0 {
            return Ok(());
        }
        let told = self.reported.deferred_errors.insert((nexus, number), errors);
        if told.is_some_and(|told| told < errors) {
            return Err(Sense::WRITE_ERROR.deferred());
        }
        Ok(())
    }
}
