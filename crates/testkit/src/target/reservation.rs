//! Persistent reservations of units, for the nexuses of sessions (SPC-4 §5.13).

use super::node::Target;
use super::session::Session;
use super::task::Outcome;
use crate::conn_id::ConnId;
use crate::scsi::{End, Refusal, Registrant, Reservations, Sense, status};

impl Target {
    /// Returns the nexus of a session with the target port of this target.
    pub(super) fn registrant(&self, session: &Session) -> Registrant {
        session.nexus.registrant(self.port_number())
    }

    /// Returns the relative target port identifier of this target.
    pub(super) fn port_number(&self) -> u16 {
        let port = self.config.port.as_ref().map(|port| port.port);
        port.or(self.config.portal_group).unwrap_or(1)
    }

    /// Returns the nexus of the session that a connection belongs to.
    pub(super) fn registrant_of(&self, id: ConnId) -> Option<Registrant> {
        let tsih = self.connections.get(id.0)?.session;
        Some(self.registrant(self.sessions.get(&tsih)?))
    }

    fn reservations(&self, number: Option<u16>) -> Option<Reservations> {
        let unit = number.and_then(|number| self.config.units.get(&number))?;
        Some(unit.reservations.clone())
    }

    /// Returns the unit attention for a change that another nexus made to the registration of this nexus,
    /// once.
    pub(super) fn meet_reservation_attention(&self, id: ConnId, number: u16) -> Result<(), Sense> {
        let told = self.reservations(Some(number)).zip(self.registrant_of(id));
        let sense = told.and_then(|(reservations, nexus)| reservations.take_attention(&nexus));
        sense.map_or(Ok(()), Err)
    }

    /// Refuses a command with RESERVATION CONFLICT if a reservation of another nexus does not permit it.
    pub(super) fn meet_reservation(
        &self,
        id: ConnId,
        number: Option<u16>,
        cdb: [u8; 16],
    ) -> Result<(), Outcome> {
        let Some((reservations, nexus)) = self.reservations(number).zip(self.registrant_of(id))
        else {
            return Ok(());
        };
        let is_hidden = number.is_some_and(|it| self.is_hidden(it, &reservations, &nexus));
        if reservations.admits(&nexus, cdb, is_hidden) { Ok(()) } else { Err(CONFLICT) }
    }

    fn is_hidden(&self, number: u16, reservations: &Reservations, nexus: &Registrant) -> bool {
        self.config.units[&number].behavior.holder_hides_registrations
            && reservations.is_hidden(nexus)
    }

    /// Executes PERSISTENT RESERVE OUT.
    pub(super) fn change_reservation(
        &mut self,
        id: ConnId,
        number: Option<u16>,
        cdb: [u8; 16],
        list: &[u8],
    ) -> Result<(), Outcome> {
        let reached = self.reservations(number).zip(self.registrant_of(id));
        let Some((number, (reservations, nexus))) = number.zip(reached) else { return Ok(()) };
        // These service actions are CLEAR, PREEMPT, and PREEMPT AND ABORT.
        if matches!(cdb[1] & 0x1f, 3..=5) && self.is_hidden(number, &reservations, &nexus) {
            return Err(CONFLICT);
        }
        let done = reservations.change(&nexus, cdb, list).map_err(|refusal| match refusal {
            Refusal::Conflict => CONFLICT,
            Refusal::Check(sense) => Outcome::check(sense),
        })?;
        let behavior = &self.config.units[&number].behavior;
        // These service actions are REGISTER, and REGISTER AND IGNORE EXISTING KEY.
        if behavior.forgetful_registrations && matches!(cdb[1] & 0x1f, 0 | 6) {
            return Err(Outcome::check(Sense::new(2, 0x08, 0)));
        }
        for registration in done.aborted {
            self.end_everywhere(id, number, |by| End::Preempt(by, registration));
        }
        Ok(())
    }
}

/// RESERVATION CONFLICT.
const CONFLICT: Outcome = Outcome::status(status::RESERVATION_CONFLICT);
