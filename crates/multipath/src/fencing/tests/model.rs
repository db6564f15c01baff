//! Models a unit with persistent registrations, by SPC-4 as far as the procedures need it. Each command may
//! fail.

use std::time::Instant;

use iscsi_pdu::scsi::reservation::{
    PersistentReserveIn, PersistentReserveOut, ReservationKey, ReservationType,
};
use iscsi_pdu::scsi::{Sense, Status};

use super::super::registrations::{Nexus, PathNexus};
use super::super::{End, ReserveCommand};

/// A result of a command, with its data.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Good(Vec<u8>),
    Check(Sense),
    Status(Status),
    Silence,
}

impl Answer {
    pub(super) fn changed() -> Self {
        Self::Good(Vec::new())
    }

    pub(super) fn check(key: u8) -> Self {
        let mut bytes = [0; 18];
        (bytes[0], bytes[2], bytes[7]) = (0x70, key, 10);
        Self::Check(Sense::decode(&bytes).unwrap())
    }

    pub(super) fn not_ready() -> Self {
        Self::check(2)
    }

    pub(super) fn illegal_request() -> Self {
        Self::check(5)
    }

    pub(super) const fn conflict() -> Self {
        Self::Status(Status::RESERVATION_CONFLICT)
    }

    pub(super) fn end(&self) -> End<'_> {
        match self {
            Self::Good(data) => End::Good(data),
            Self::Check(sense) => End::Check(sense),
            Self::Status(status) => End::Status(*status),
            Self::Silence => End::NoAnswer,
        }
    }
}

/// Returns the data of READ KEYS.
pub(super) fn keys(generation: u32, keys: &[u64]) -> Answer {
    let mut data = generation.to_be_bytes().to_vec();
    data.extend(u32::try_from(keys.len() * 8).unwrap().to_be_bytes());
    data.extend(keys.iter().flat_map(|key| key.to_be_bytes()));
    Answer::Good(data)
}

/// Returns the data of READ FULL STATUS.
pub(super) fn full_status(generation: u32, registrants: &[(u64, PathNexus)]) -> Answer {
    let mut list = Vec::new();
    for (key, nexus) in registrants {
        let mut id = format!("iqn.2026-01.a:b,i,0x{}\0", hex(nexus.isid.to_bytes())).into_bytes();
        id.resize(id.len().next_multiple_of(4), 0);
        let mut descriptor = [0; 24];
        descriptor[..8].copy_from_slice(&key.to_be_bytes());
        descriptor[18..20].copy_from_slice(&nexus.portal_group.unwrap_or_default().to_be_bytes());
        descriptor[20..].copy_from_slice(&u32::try_from(id.len() + 4).unwrap().to_be_bytes());
        list.extend(descriptor);
        list.extend([0x45, 0]);
        list.extend(u16::try_from(id.len()).unwrap().to_be_bytes());
        list.extend(id);
    }
    let mut data = generation.to_be_bytes().to_vec();
    data.extend(u32::try_from(list.len()).unwrap().to_be_bytes());
    data.extend(list);
    Answer::Good(data)
}

/// Returns the data of READ RESERVATION.
pub(super) fn held(reservation: Option<(u64, ReservationType)>) -> Answer {
    let mut data = vec![0; 8];
    if let Some((key, kind)) = reservation {
        data[7] = 16;
        data.extend(key.to_be_bytes());
        data.extend([0, 0, 0, 0, 0, kind.code(), 0, 0]);
    }
    Answer::Good(data)
}

fn hex(bytes: [u8; 6]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub(super) nexus: PathNexus,
    pub(super) key: ReservationKey,
    /// Whether the registration was made after the other host had fenced the disk off.
    pub(super) is_after_fence: bool,
}

#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) registered: Vec<Registered>,
    pub(super) generation: u32,
    pub(super) is_fenced: bool,
}

impl Unit {
    /// Lets another host end all registrations by the key.
    pub(super) fn fence(&mut self, key: ReservationKey) {
        self.registered.retain(|it| it.key != key);
        self.generation += 1;
        self.is_fenced = true;
    }

    pub(super) fn find(&self, nexus: PathNexus) -> Option<&Registered> {
        self.registered.iter().find(|it| it.nexus == nexus)
    }

    pub(super) fn execute(&mut self, nexus: PathNexus, command: ReserveCommand) -> Answer {
        match command {
            ReserveCommand::In { action: PersistentReserveIn::ReadKeys, .. } => {
                let all: Vec<_> = self.registered.iter().map(|it| it.key.0).collect();
                keys(self.generation, &all)
            }
            ReserveCommand::In { action: PersistentReserveIn::ReadReservation, .. } => held(None),
            ReserveCommand::In { .. } => {
                let all: Vec<_> = self.registered.iter().map(|it| (it.key.0, it.nexus)).collect();
                full_status(self.generation, &all)
            }
            ReserveCommand::Out(change) => self.change(nexus, change),
        }
    }

    fn change(&mut self, nexus: PathNexus, change: PersistentReserveOut) -> Answer {
        let known = self.find(nexus).map_or(ReservationKey::NONE, |it| it.key);
        let new_key = match change {
            PersistentReserveOut::Register { key, new_key, .. } => {
                if key != known {
                    return Answer::conflict();
                }
                new_key
            }
            PersistentReserveOut::RegisterAndIgnoreExistingKey { new_key, .. } => new_key,
            PersistentReserveOut::Reserve { .. }
            | PersistentReserveOut::Release { .. }
            | PersistentReserveOut::Clear { .. }
            | PersistentReserveOut::Preempt { .. }
            | PersistentReserveOut::PreemptAndAbort { .. } => panic!("{change:?}"),
        };
        let is_after_fence = self.find(nexus).map_or(self.is_fenced, |it| it.is_after_fence);
        self.registered.retain(|it| it.nexus != nexus);
        if !new_key.is_none() {
            self.registered.push(Registered { nexus, key: new_key, is_after_fence });
        }
        self.generation += 1;
        Answer::changed()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "any time will do, and there is no other way to make one"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Returns the nexus of a path to portal group 1. `isid` is the qualifier in the ISID of the path's session.
pub(super) fn nexus(isid: u16) -> PathNexus {
    PathNexus { isid: iscsi_pdu::Isid::random([1, 2, 3], isid), portal_group: Some(1) }
}

pub(super) fn known(isid: u16) -> Option<Nexus> {
    nexus(isid).known()
}
