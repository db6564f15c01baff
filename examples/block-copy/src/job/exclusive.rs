//! Reserves destinations exclusively (`--exclusive`) by persistent reservations (SPC-4 §5.13).
//!
//! ```text
//!  63                                  24 23             0
//! ┌──────────────────────────────────────┬────────────────┐
//! │ digest of the initiator's iSCSI name │ random, not 0  │  the key of a run
//! └──────────────────────────────────────┴────────────────┘
//! ```
//! Keys with the same first 40 bits belong to runs of the same initiator. A live run holds the destination's
//! lock on this host (`claims.rs`), so the holder of the lock may preempt all other keys of its initiator:
//! their processes have ended.

use std::io;

use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::device::DeviceError;
use iscsi_initiator::scsi::ReservationKey;
use iscsi_initiator::{Error as IscsiError, Initiator};

use crate::end::End;
use crate::error::Error;
use crate::error::refusal::Refusal;
use crate::location::Location;
use crate::side::Side;

/// The random bits of a key. They differ in each run.
const RUN: u64 = 0xff_ffff;

/// The reservation key of this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exclusive {
    key: ReservationKey,
}

impl Exclusive {
    /// Creates a key for a copy to this destination.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] if the destination has no units, or its URL has a reservation key; [`ProgramError::Runtime`]
    /// if the system has no random bytes.
    pub(crate) fn new(to: &mut Location, initiator: &Initiator) -> Result<Self, Error> {
        if !to.has_units() {
            return Err(ProgramError::usage(
                "--exclusive reserves the units of the destination, and it has none; leave it out",
            )
            .into());
        }
        if to.urls_mut().iter().any(|url| url.parameters.reservation_key.is_some()) {
            return Err(ProgramError::usage(
                "--exclusive makes a reservation key of its own; leave reservation_key out of the URL",
            ).into());
        }
        let run =
            getrandom::u64().map_err(|error| ProgramError::Runtime(io::Error::other(error)))?;
        Ok(Self { key: key(initiator.name().as_str(), run) })
    }

    /// Returns the initiator with an option that registers its sessions with the key.
    ///
    /// # Errors
    /// None in practice: the name is valid.
    pub(crate) fn register(self, initiator: &Initiator) -> Result<Initiator, Error> {
        let options = initiator.options().clone().with_reservation_key(self.key);
        Initiator::with_options(initiator.name().as_str(), options).map_err(Error::Initiator)
    }

    /// Reserves the units of a destination. The caller must hold their locks on this host.
    ///
    /// # Errors
    /// The errors of [`Disk::reserve_exclusively`](iscsi_initiator::Disk::reserve_exclusively).
    pub(crate) async fn reserve(self, destination: &End) -> Result<(), Error> {
        for unit in destination.units() {
            unit.reserve_exclusively(|other| is_of_same_initiator(self.key, other)).await?;
            tracing::info!(unit = %unit.name(), key = %self.key, "reserved for this copy alone");
        }
        Ok(())
    }
}

/// Returns [`Refusal::NoReservations`] if the error means that the destination does not support reservations,
/// otherwise the error unchanged.
pub(crate) fn explained(error: Error) -> Error {
    let is_refused = matches!(
        &error,
        Error::Unit { side: Side::Destination, cause } if is_unsupported(cause)
    );
    if is_refused { Refusal::NoReservations.into() } else { error }
}

fn is_unsupported(cause: &DeviceError) -> bool {
    cause.source_as().and_then(IscsiError::unsupported_feature).is_some()
}

/// Returns the key of a run, from the initiator name and the random number `run`.
fn key(initiator: &str, run: u64) -> ReservationKey {
    let digest = *blake3::hash(initiator.as_bytes()).as_bytes();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    let owner = u64::from_be_bytes([a, b, c, d, e, f, g, h]) & !RUN;
    ReservationKey(owner | (run & RUN).max(1))
}

const fn is_of_same_initiator(one: ReservationKey, other: ReservationKey) -> bool {
    one.0 & !RUN == other.0 & !RUN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_initiators_apart_and_runs() {
        let ours = key("iqn.2026-01.org.example:a", 0);
        assert_eq!(ours.0 & RUN, 1, "a key with nothing behind the name is none");
        for run in [1, 2, RUN, u64::MAX] {
            let other = key("iqn.2026-01.org.example:a", run);
            assert!(is_of_same_initiator(ours, other), "{other}");
            assert!(!is_of_same_initiator(ours, key("iqn.2026-01.org.example:b", run)));
        }
        assert_ne!(ours, key("iqn.2026-01.org.example:a", 2));
    }
}
