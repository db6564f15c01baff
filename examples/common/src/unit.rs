//! Parses the URL of a unit, and creates the initiator that opens the unit.

use iscsi_initiator::{Error, Initiator, Options, Url, UrlError};

/// Parses the URL of a logical unit.
///
/// # Errors
/// What is wrong with the URL, without its password. It is [`UrlError::PortalOnly`] or [`UrlError::NoUnit`] if
/// the URL names no unit.
pub fn parse_url(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text)?;
    if url.target.is_none() {
        return Err(UrlError::PortalOnly.into());
    }
    if url.lun.is_none() {
        return Err(UrlError::NoUnit.into());
    }
    Ok(url)
}

/// Returns the initiator with the name `name`, or with a name made from this host's name and identity.
///
/// # Errors
/// If the name is invalid.
pub fn initiator(name: Option<&str>, options: Options) -> Result<Initiator, Error> {
    match name {
        Some(name) => Initiator::with_options(name, options),
        None => Initiator::with_default_name(options),
    }
}
