//! The unit that the command line names, and who opens it.

use iscsi_initiator::{Error, Initiator, Options, Url, UrlError};

/// Reads the URL of a logical unit.
///
/// # Errors
/// What is wrong with it; a password in it is not repeated. [`UrlError::PortalOnly`] or [`UrlError::NoUnit`]
/// where it names no unit.
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

/// The initiator of this name, or of the one that is made from this host's name and identity.
///
/// # Errors
/// When the name is none.
pub fn initiator(name: Option<&str>, options: Options) -> Result<Initiator, Error> {
    match name {
        Some(name) => Initiator::with_options(name, options),
        None => Initiator::with_default_name(options),
    }
}
