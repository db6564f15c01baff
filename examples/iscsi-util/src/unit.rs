//! Finds logical units by their LUNs.

use iscsi_initiator::{Error, ErrorKind, LogicalUnit, Session, Url, UrlError};

/// Returns the unit that a URL names. It may be of any type, and the target may use any format of LUNs.
///
/// # Errors
/// [`UrlError::NoUnit`], or the errors of [`LogicalUnit::check_present`].
pub async fn named(session: &Session, url: &Url) -> Result<LogicalUnit, Error> {
    let lun = url.lun.ok_or(UrlError::NoUnit)?;
    let unit = session.logical_unit(lun);
    match unit.check_present().await {
        Err(error) if error.kind() == ErrorKind::NotFound => session.listed_unit(lun).await,
        result => result.map(|_| unit),
    }
}
