//! Logical units, found by their numbers.

use iscsi_initiator::{Error, LogicalUnit, Session, Url};
use iscsi_pdu::scsi::{AdditionalSense, StandardInquiry};

/// The unit that a URL names, of any type, in whatever form the target spells its number.
///
/// # Errors
/// [`Error::NoUnitNamed`], [`Error::NoSuchUnit`], or as [`LogicalUnit::inquiry`].
pub async fn named(session: &Session, url: &Url) -> Result<LogicalUnit, Error> {
    let lun = url.lun.ok_or(Error::NoUnitNamed)?;
    let unit = session.logical_unit(lun);
    match inquiry(&unit).await {
        Err(Error::NoSuchUnit { .. }) => session.listed_unit(lun).await,
        result => result.map(|_| unit),
    }
}

/// The standard INQUIRY data of a unit of any type.
///
/// # Errors
/// [`Error::NoSuchUnit`], or as [`LogicalUnit::inquiry`].
pub async fn inquiry(unit: &LogicalUnit) -> Result<StandardInquiry, Error> {
    let none = || Error::NoSuchUnit { lun: unit.lun(), target: unit.session().target_url() };
    match unit.inquiry().await {
        Ok(inquiry) if inquiry.is_present() => Ok(inquiry),
        Ok(_) => Err(none()),
        Err(error) if is_no_unit(&error) => Err(none()),
        Err(error) => Err(error),
    }
}

fn is_no_unit(error: &Error) -> bool {
    error
        .sense()
        .is_some_and(|sense| sense.additional == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)
}
