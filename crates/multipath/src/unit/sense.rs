//! What sense data mean for the unit as a whole.

use iscsi_pdu::scsi::{AdditionalSense, SenseKey};

/// Whether a deferred error reports that something acknowledged was not done (SPC-4 §4.5.5).
pub(super) const fn is_failure(key: SenseKey) -> bool {
    !matches!(key, SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::UnitAttention)
}

/// Whether a flush that ended with this key may have lost what it was to write: the unit need not try again.
pub const fn is_write_failure(key: SenseKey) -> bool {
    matches!(
        key,
        SenseKey::MediumError
            | SenseKey::HardwareError
            | SenseKey::DataProtect
            | SenseKey::VolumeOverflow
    )
}

/// Whether the unit behind the number may be another one from now on, or have other blocks: its target has restarted, its
/// numbers were given out again, or it reports that it has changed, or has become ready again.
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
