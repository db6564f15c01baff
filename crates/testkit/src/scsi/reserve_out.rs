//! PERSISTENT RESERVE OUT: changes to registrations and reservations (SPC-4 §5.13, §6.16).

use super::reservations::{Held, Kind, Registrant, Registration, Reservations, State};
use super::sense::Sense;
use super::work::{Sink, Work};
use crate::convert::{be, be32};

/// Errors with which a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

/// Effects of a change on other nexuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Registrations of the nexuses whose commands end (PREEMPT AND ABORT).
    pub(crate) aborted: Vec<Registration>,
}

/// The fields of the parameter list of PERSISTENT RESERVE OUT.
struct Parameters {
    key: u64,
    action_key: u64,
    all_ports: bool,
    persists: bool,
}

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;

/// Length of every supported parameter list, bytes.
const LENGTH: u32 = 24;

/// Starts the command, whose parameter list follows.
pub(super) fn begin(cdb: [u8; 16]) -> Result<Work, Sense> {
    if cdb[1] & 0x1f > REGISTER_AND_IGNORE {
        return Err(Sense::INVALID_FIELD);
    }
    if be32(&cdb[5..]) != LENGTH {
        return Err(Sense::PARAMETER_LENGTH);
    }
    Ok(Work::Take(Sink::Parameters(Vec::new()), LENGTH.into()))
}

impl Reservations {
    /// Executes PERSISTENT RESERVE OUT for a nexus.
    pub(crate) fn change(
        &self,
        nexus: &Registrant,
        cdb: [u8; 16],
        list: &[u8],
    ) -> Result<Done, Refusal> {
        let parameters = Parameters::read(list).map_err(Refusal::Check)?;
        let mut state = self.lock();
        match cdb[1] & 0x1f {
            REGISTER => state.register(nexus, &parameters, false)?,
            REGISTER_AND_IGNORE => state.register(nexus, &parameters, true)?,
            action => {
                let registration = state.registration(nexus).cloned();
                let own = registration.filter(|own| own.key == parameters.key);
                let own = own.ok_or(Refusal::Conflict)?;
                let kind = || {
                    let scope_and_type = cdb[2];
                    let kind = Kind::from_code(scope_and_type).filter(|_| scope_and_type >> 4 == 0);
                    kind.ok_or(Refusal::Check(Sense::INVALID_FIELD))
                };
                match action {
                    RESERVE => state.reserve(own, kind()?)?,
                    RELEASE => state.release(&own, kind()?)?,
                    CLEAR => state.clear(&own),
                    PREEMPT => drop(state.preempt(&own, kind()?, parameters.action_key)?),
                    PREEMPT_AND_ABORT => {
                        let aborted = state.preempt(&own, kind()?, parameters.action_key)?;
                        return Ok(Done { aborted });
                    }
                    _ => return Err(Refusal::Check(Sense::INVALID_FIELD)),
                }
            }
        }
        Ok(Done::default())
    }

    /// Registers a nexus of another host, with a key that is not 0.
    pub fn register_by_another(&self, key: u64) {
        let parameters = Parameters { key: 0, action_key: key, all_ports: false, persists: false };
        let registered = self.lock().register(&another(), &parameters, true);
        debug_assert_eq!(registered, Ok(()), "nothing refuses a registration that ignores keys");
    }

    /// Reserves the unit for the other host, which must be registered. `code` is the type (1, 3, 5 to 8).
    ///
    /// Returns whether the unit accepted the reservation.
    pub fn reserve_by_another(&self, code: u8) -> bool {
        let mut state = self.lock();
        let (Some(own), Some(kind)) =
            (state.registration(&another()).cloned(), Kind::from_code(code))
        else {
            return false;
        };
        state.reserve(own, kind).is_ok()
    }

    /// Removes the registrations with `key` on behalf of the other host, which must be registered (PREEMPT).
    /// If one of the removed registrants held the reservation, the other host then holds it with type `code`.
    ///
    /// Returns whether the unit accepted the command.
    pub fn preempt_by_another(&self, key: u64, code: u8) -> bool {
        let mut state = self.lock();
        let (Some(own), Some(kind)) =
            (state.registration(&another()).cloned(), Kind::from_code(code))
        else {
            return false;
        };
        state.preempt(&own, kind, key).is_ok()
    }
}

/// Returns the nexus of the other host.
fn another() -> Registrant {
    Registrant { initiator: "iqn.2026-01.org.example:another".into(), isid: 1, target_port: 1 }
}

impl Parameters {
    fn read(list: &[u8]) -> Result<Self, Sense> {
        if list.len() != LENGTH as usize {
            return Err(Sense::PARAMETER_LENGTH);
        }
        let flags = list[20];
        if flags & 0x08 != 0 {
            return Err(Sense::INVALID_PARAMETER);
        }
        let (all_ports, persists) = (flags & 0x04 != 0, flags & 0x01 != 0);
        Ok(Self { key: be(list, 8), action_key: be(&list[8..], 8), all_ports, persists })
    }
}

impl State {
    /// Executes REGISTER or REGISTER AND IGNORE EXISTING KEY (SPC-4 §5.13.7, §5.13.11.2).
    fn register(
        &mut self,
        nexus: &Registrant,
        parameters: &Parameters,
        ignore: bool,
    ) -> Result<(), Refusal> {
        let own = self.registration(nexus).cloned();
        if !ignore && own.as_ref().map_or(0, |own| own.key) != parameters.key {
            return Err(Refusal::Conflict);
        }
        let key = parameters.action_key;
        match own {
            Some(own) if key == 0 => self.unregister(&own),
            Some(own) => {
                let renamed = Registration { key, ..own.clone() };
                if let Some(held) = self.held.as_mut().filter(|held| held.registration == own) {
                    held.registration = renamed.clone();
                }
                let all = self.registrations.iter_mut().filter(|it| **it == own);
                all.for_each(|it| *it = renamed.clone());
            }
            None if key == 0 => {}
            None => self.registrations.push(Registration {
                registrant: nexus.clone(),
                key,
                all_ports: parameters.all_ports,
            }),
        }
        self.persists = parameters.persists;
        self.count();
        Ok(())
    }

    /// Removes a registration on request of its own nexus. Removes the reservation too, if this registration
    /// was its only holder.
    fn unregister(&mut self, own: &Registration) {
        self.registrations.retain(|it| it != own);
        let Some(held) = self.held.clone() else { return };
        let left = self.registrations.first().cloned();
        match left {
            Some(left) if held.kind.is_of_all() => {
                self.held = Some(Held { registration: left, kind: held.kind });
            }
            _ if held.kind.is_of_all() || held.registration == *own => {
                self.held = None;
                self.report_released(held.kind, own);
            }
            _ => {}
        }
    }

    fn reserve(&mut self, own: Registration, kind: Kind) -> Result<(), Refusal> {
        match &self.held {
            None => self.held = Some(Held { registration: own, kind }),
            Some(held) if held.kind == kind && self.holds(&own) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(())
    }

    fn release(&mut self, own: &Registration, kind: Kind) -> Result<(), Refusal> {
        let Some(held) = self.held.clone().filter(|_| self.holds(own)) else { return Ok(()) };
        if held.kind != kind {
            return Err(Refusal::Check(Sense::INVALID_RELEASE));
        }
        self.held = None;
        self.report_released(held.kind, own);
        Ok(())
    }

    /// Reports to the other registrants that the reservation is released, if it gave them access (SPC-4
    /// §5.13.11.2.2).
    fn report_released(&mut self, kind: Kind, own: &Registration) {
        if kind.admits_registrants() {
            self.report_to_others(own, Sense::RESERVATIONS_RELEASED);
        }
    }

    fn report_to_others(&mut self, own: &Registration, sense: Sense) {
        for other in self.registrations.clone().iter().filter(|it| *it != own) {
            self.queue_attention(other, sense);
        }
    }

    fn clear(&mut self, own: &Registration) {
        self.report_to_others(own, Sense::RESERVATIONS_PREEMPTED);
        self.registrations.clear();
        self.held = None;
        self.count();
    }

    /// Executes PREEMPT (SPC-4 §5.13.11.4), and returns the registrations that it removes.
    fn preempt(
        &mut self,
        own: &Registration,
        kind: Kind,
        victim: u64,
    ) -> Result<Vec<Registration>, Refusal> {
        let held = self.held.clone();
        let takes_over = match &held {
            Some(held) if held.kind.is_of_all() => victim == 0,
            Some(held) => held.registration.key == victim,
            None => false,
        };
        if victim == 0 && !takes_over {
            return Err(Refusal::Check(Sense::INVALID_PARAMETER));
        }
        let is_victim = |it: &Registration| {
            // The nexus that takes the reservation over keeps its registration, whatever its key is.
            !(takes_over && it == own) && (it.key == victim || takes_over && victim == 0)
        };
        let (removed, kept): (Vec<_>, Vec<_>) =
            self.registrations.drain(..).partition(|it| is_victim(it));
        self.registrations = kept;
        if removed.is_empty() && !takes_over {
            return Err(Refusal::Conflict);
        }
        if takes_over {
            self.held = Some(Held { registration: own.clone(), kind });
            if let Some(held) = held.filter(|held| held.kind != kind) {
                self.report_released(held.kind, own);
            }
        } else if let Some(held) = held.filter(|held| held.kind.is_of_all()) {
            let left = self.registrations.first().cloned();
            self.held = left.map(|registration| Held { registration, kind: held.kind });
        }
        for other in removed.iter().filter(|it| *it != own) {
            self.queue_attention(other, Sense::REGISTRATIONS_PREEMPTED);
        }
        self.count();
        Ok(removed)
    }

    const fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}
