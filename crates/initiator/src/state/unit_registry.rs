//! Registers what the disks of an initiator that write to one unit share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use iscsi_multipath::Profile;
use iscsi_pdu::IscsiName;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::scsi::vpd::Designator;

use crate::state::range_locks::{RangeLocks, WeakRangeLocks};
use crate::state::unit_flushes::UnitFlushes;

/// The range locks and flushes of each unit that is in use. All disks and sessions that write to a unit wait
/// for the same ranges, and receive the failures of each other's flushes.
#[derive(Debug, Default)]
pub(crate) struct UnitRegistry(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    range_locks: Vec<(UnitKey, WeakRangeLocks)>,
    flushes: Vec<(UnitKey, Weak<UnitFlushes>)>,
}

/// Key by which two disks of an initiator are recognized to write to one unit. Two units that wrongly report
/// the same identifier wait for each other's ranges and flushes, and receive each other's failures. That
/// costs time, but no data.
#[derive(Clone, Debug, Eq, PartialEq)]
enum UnitKey {
    Designator(Designator),
    SerialNumber(String),
    /// Target and LUN of a unit that reports no identifier.
    Address(Option<IscsiName>, Lun),
}

impl UnitRegistry {
    /// Returns what the disks of a unit share. The unit is found by its identifier, or by target and LUN if
    /// it has none.
    pub(crate) fn of(
        &self,
        profile: &Profile,
        target: Option<&IscsiName>,
        lun: Lun,
    ) -> (RangeLocks, Arc<UnitFlushes>) {
        let key = UnitKey::of(profile, target, lun);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Entries { range_locks, flushes } = &mut *entries;
        range_locks.retain(|(_, locks)| locks.is_in_use());
        let known = range_locks.iter().find(|(known, _)| *known == key);
        let locks = known.and_then(|(_, locks)| locks.upgrade()).unwrap_or_else(|| {
            let locks = RangeLocks::default();
            range_locks.push((key.clone(), locks.downgrade()));
            locks
        });
        flushes.retain(|(_, flushes)| flushes.strong_count() > 0);
        let known = flushes.iter().find(|(known, _)| *known == key);
        let flushes = known.and_then(|(_, flushes)| flushes.upgrade()).unwrap_or_else(|| {
            let new = Arc::default();
            flushes.push((key, Arc::downgrade(&new)));
            new
        });
        (locks, flushes)
    }
}

impl UnitKey {
    fn of(profile: &Profile, target: Option<&IscsiName>, lun: Lun) -> Self {
        let designator = profile.designator.clone().map(Self::Designator);
        let serial = || profile.serial_number.clone().map(Self::SerialNumber);
        designator.or_else(serial).unwrap_or_else(|| Self::Address(target.cloned(), lun))
    }
}
