//! Events that end commands of a unit at all ports of its array, whichever port receives the event.

use super::node::Target;
use crate::conn_id::ConnId;
use crate::scsi::{End, Registrant, Registration};

impl Target {
    /// Ends commands of a unit at all ports: immediately at this port, and at each other port before that
    /// port processes anything else.
    pub(super) fn end_everywhere(
        &mut self,
        id: ConnId,
        number: u16,
        end: impl FnOnce(Registrant) -> End,
    ) {
        let unit = self.config.units.get(&number);
        if let Some((unit, nexus)) = unit.zip(self.registrant_of(id)) {
            unit.ends.add(end(nexus));
        }
        self.catch_up();
    }

    /// Applies the events that end commands and that this target has not applied yet.
    pub(super) fn catch_up(&mut self) {
        while let Some((number, end)) = self.next_end() {
            match end {
                End::Reset(by) => self.reset_for_others(number, self.session_by(&by)),
                End::Clear(by) => self.clear_for_others(number, self.session_by(&by)),
                End::Preempt(by, registration) => self.end_preempted(number, &by, &registration),
            }
        }
    }

    fn next_end(&mut self) -> Option<(u16, End)> {
        self.config.units.iter().find_map(|(number, unit)| {
            let seen = self.reported.ends.entry(*number).or_insert_with(|| unit.ends.all_seen());
            if !seen.is_of(&unit.ends) {
                *seen = unit.ends.all_seen();
            }
            Some((*number, seen.next()?))
        })
    }

    fn session_by(&self, nexus: &Registrant) -> Option<u16> {
        let mut sessions = self.sessions.iter();
        let own = sessions.find(|(_, session)| self.registrant(session) == *nexus);
        own.map(|(tsih, _)| *tsih)
    }

    /// Ends the commands of the nexuses whose registration was removed (PREEMPT AND ABORT).
    fn end_preempted(&mut self, number: u16, by: &Registrant, registration: &Registration) {
        let form = self.config.lun_form;
        let is_victim = |nexus: &Registrant| nexus != by && registration.is_of(nexus);
        for tsih in self.sessions.keys().copied().collect::<Vec<_>>() {
            let nexus = self.sessions.get(&tsih).map(|session| self.registrant(session));
            if nexus.is_some_and(|nexus| is_victim(&nexus)) {
                self.abort_tasks(tsih, |lun| form.decode(lun) == Some(number));
            }
        }
        let port = self.port_number();
        self.give_up(|late| {
            let is_of_unit = form.decode(late.lun) == Some(number);
            is_of_unit && is_victim(&late.nexus.registrant(port))
        });
    }
}
