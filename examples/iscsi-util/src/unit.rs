//! Finds logical units by their numbers.

use iscsi_initiator::{Error, ErrorKind, LogicalUnit, Session, Url, UrlError};

/// Returns the unit that a URL names, of any type, in whatever format the target writes its number.
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
