//! PERSISTENT RESERVE IN: the registrations of a unit (SPC-4 §6.15).

use super::reservations::{Registration, Reservations, State};
use super::sense::Sense;
use super::work::{Work, answer};
use crate::convert::{be, len32};

pub(super) fn reserve_in(reservations: &Reservations, cdb: [u8; 16]) -> Result<Work, Sense> {
    let state = reservations.lock();
    let data = match cdb[1] & 0x1f {
        0 => with_header(&state, state.registrations.iter().flat_map(|it| it.key.to_be_bytes())),
        1 => with_header(&state, reservation(&state)),
        2 => capabilities(&state),
        3 => with_header(&state, state.registrations.iter().flat_map(|it| full(&state, it))),
        _ => return Err(Sense::INVALID_FIELD),
    };
    Ok(answer(data, be(&cdb[7..], 2)))
}

/// Returns PRGENERATION and ADDITIONAL LENGTH, followed by `body`.
fn with_header(state: &State, body: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let body: Vec<u8> = body.into_iter().collect();
    let mut data = state.generation.to_be_bytes().to_vec();
    data.extend(len32(body.len()).to_be_bytes());
    data.extend(body);
    data
}

/// Returns the 16 bytes of READ RESERVATION, or none if there is no reservation. If all registrants hold it,
/// the key is 0.
fn reservation(state: &State) -> Vec<u8> {
    let Some(held) = &state.held else { return Vec::new() };
    let key = if held.kind.is_of_all() { 0 } else { held.registration.key };
    let mut data = key.to_be_bytes().to_vec();
    data.extend([0, 0, 0, 0, 0, held.kind.code(), 0, 0]);
    data
}

/// Returns the data of REPORT CAPABILITIES: ATP_C, PTPL_C and TMV are set, PTPL_A follows APTPL, and all six
/// types are supported.
fn capabilities(state: &State) -> Vec<u8> {
    vec![0, 8, 0x05, 0x80 | u8::from(state.persists), 0xea, 0x01, 0, 0]
}

/// Returns a full status descriptor, with the TransportID of an iSCSI initiator port (SPC-4 §6.15.5, §7.6.4.6).
fn full(state: &State, registration: &Registration) -> Vec<u8> {
    let registrant = &registration.registrant;
    let mut name = format!("{},i,0x{:012x}", registrant.initiator, registrant.isid).into_bytes();
    name.push(0);
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    let holds = state.holds(registration);
    let kind = state.held.as_ref().filter(|_| holds).map_or(0, |held| held.kind.code());
    let mut data = registration.key.to_be_bytes().to_vec();
    let flags = u8::from(registration.all_ports) << 1 | u8::from(holds);
    data.extend([0, 0, 0, 0, flags, kind, 0, 0, 0, 0]);
    data.extend(registrant.target_port.to_be_bytes());
    data.extend(len32(name.len() + 4).to_be_bytes());
    let [.., high, low] = len32(name.len()).to_be_bytes();
    data.extend([0x45, 0, high, low]);
    data.extend(name);
    data
}
