//! Logical units, found by their numbers.

use iscsi_initiator::scsi::{AdditionalSense, StandardInquiry};
use iscsi_initiator::{Error, LogicalUnit, Session, Url};

/// The unit that a URL names. Whether the target has it is not known yet.
///
/// # Errors
/// [`Error::NoUnitNamed`].
pub fn named(session: &Session, url: &Url) -> Result<LogicalUnit, Error> {
    url.lun.map(|lun| session.logical_unit(lun)).ok_or(Error::NoUnitNamed)
}

/// The standard INQUIRY data of a unit of any type.
///
/// # Errors
/// [`Error::NoSuchUnit`], or as [`LogicalUnit::inquiry`].
pub async fn inquiry(unit: &LogicalUnit) -> Result<StandardInquiry, Error> {
    match unit.inquiry().await {
        Ok(inquiry) if inquiry.is_present() => Ok(inquiry),
        Ok(_) => Err(Error::NoSuchUnit(unit.lun())),
        Err(error) if is_no_unit(&error) => Err(Error::NoSuchUnit(unit.lun())),
        Err(error) => Err(error),
    }
}

fn is_no_unit(error: &Error) -> bool {
    error
        .sense()
        .is_some_and(|sense| sense.additional == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
}
