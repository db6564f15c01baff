//! The range locks of the units that an initiator's disks write.

use std::sync::{Mutex, PoisonError};

use iscsi_pdu::IscsiName;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::scsi::vpd::Designator;

use crate::state::profile::Profile;
use crate::state::range_locks::{RangeLocks, WeakRangeLocks};

/// The range locks of each unit that is in use: whichever disk writes there, and over whichever
/// session, it waits for the same ranges as the others.
#[derive(Debug, Default)]
pub(crate) struct RangeRegistry(Mutex<Vec<(UnitKey, WeakRangeLocks)>>);

/// By what two disks of an initiator are known to write to one unit. Two units that say the same name
/// wait for each other's ranges, and lose nothing else by it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum UnitKey {
    Designator(Designator),
    SerialNumber(String),
    /// The unit has no name: where it is.
    Address(Option<IscsiName>, Lun),
}

impl RangeRegistry {
    /// The range locks of a unit, by its name; by target and LUN where it has none.
    pub(crate) fn of(&self, profile: &Profile, target: Option<&IscsiName>, lun: Lun) -> RangeLocks {
        let key = UnitKey::of(profile, target, lun);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(_, locks)| locks.is_in_use());
        let known = entries.iter().find(|(known, _)| *known == key);
        if let Some(locks) = known.and_then(|(_, locks)| locks.upgrade()) {
            return locks;
        }
        let locks = RangeLocks::default();
        entries.push((key, locks.downgrade()));
        locks
    }
}

impl UnitKey {
    fn of(profile: &Profile, target: Option<&IscsiName>, lun: Lun) -> Self {
        let designator = profile.designator.clone().map(Self::Designator);
        let serial = || profile.serial_number.clone().map(Self::SerialNumber);
        designator.or_else(serial).unwrap_or_else(|| Self::Address(target.cloned(), lun))
    }
}
