//! Evaluates sense data that concern the unit as a whole.

use iscsi_pdu::scsi::{AdditionalSense, SenseKey};

/// Returns whether a deferred error with this key reports that an acknowledged command failed (SPC-4 §4.5.5).
pub(super) const fn is_failure(key: SenseKey) -> bool {
    !matches!(key, SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::UnitAttention)
}

/// Returns whether a flush that ended with this sense key may have lost data: the unit need not try again to
/// write the cached data.
pub const fn is_write_failure(key: SenseKey) -> bool {
    matches!(
        key,
        SenseKey::MediumError
            | SenseKey::HardwareError
            | SenseKey::DataProtect
            | SenseKey::VolumeOverflow
    )
}

/// Returns whether the LUN may lead to another unit after this report, or to a unit with other blocks: the
/// target has restarted or changed its LUN assignments, or the unit reports a change, or that it has become
/// ready.
pub const fn may_be_another_unit(reported: AdditionalSense) -> bool {
    reported.asc == AdditionalSense::POWER_ON_OR_RESET.asc
        || matches!(
            reported,
            AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
                | AdditionalSense::NOT_READY_TO_READY_CHANGE
                | AdditionalSense::MODE_PARAMETERS_CHANGED
                | AdditionalSense::CAPACITY_DATA_HAS_CHANGED
                | AdditionalSense::INQUIRY_DATA_HAS_CHANGED
                | AdditionalSense::DEVICE_IDENTIFIER_CHANGED
                | AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED
        )
}
