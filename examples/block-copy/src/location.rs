//! Parses the locations that the command line names.

mod like_url;
pub(crate) mod nbd_tls;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use iscsi_copy::{NbdError, NbdUri};
use iscsi_examples_common::program::ProgramError;
use iscsi_examples_common::{place, volume};
use iscsi_initiator::Url;
use iscsi_volume::Description;

use crate::error::Error;
use crate::side::Side;

/// A location that can be the source or the destination of a copy.
#[derive(Clone, Debug)]
pub enum Location {
    /// A file, of any kind.
    Path(PathBuf),
    /// Standard input or standard output, depending on the side.
    Standard,
    /// A logical unit.
    Unit(Box<Url>),
    /// An export of an NBD server.
    Export(NbdUri),
    /// Several units as one device: the path of the file that describes them, and the description.
    Volume(PathBuf, Box<Description>),
}

impl Location {
    /// Parses an argument, and reads the file if the argument names a volume. An argument that begins with
    /// `volume:` names a volume, and one that contains `://` is a URL. To name a file of such a name, write
    /// `./` before it, and single slashes. Other arguments with a colon before the first slash may be meant as
    /// a URL. They are a path only if they name the source and such a file exists.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] for an empty argument, [`Error::Refused`] for an argument that looks like a URL,
    /// [`Error::Unit`] for a URL that is malformed or names no logical unit, [`Error::Volume`] for a file
    /// that describes no volume.
    pub async fn parse(argument: &OsStr, side: Side) -> Result<Self, Error> {
        if let Some(path) = volume::path(argument) {
            let description = volume::load(&path).await;
            let description = description.map_err(|cause| Error::Volume { side, cause })?;
            return Ok(Self::Volume(path, description.into()));
        }
        match argument.to_str() {
            Some("") => Err(ProgramError::usage(
                "a source or destination is empty; name a path, -, an iscsi:// URL, volume:FILE or an nbd:// URI",
            )
            .into()),
            Some("-") => Ok(Self::Standard),
            Some(text) if NbdUri::is_meant_by(text) => {
                let uri = text.parse().and_then(nbd_tls::provide);
                uri.map(Self::Export).map_err(|cause: NbdError| Error::Nbd { side, cause })
            }
            Some(text) if text.contains("://") => {
                let url = place::parse_url(text)
                    .map_err(|cause| Error::Unit { side, cause: cause.into() })?;
                Ok(Self::Unit(Box::new(url)))
            }
            _ => match like_url::refusal(argument, side) {
                Some(refusal) => Err(refusal.into()),
                None => Ok(Self::Path(argument.into())),
            },
        }
    }

    /// Returns the URLs of its units.
    pub(crate) fn urls_mut(&mut self) -> Vec<&mut Url> {
        match self {
            Self::Unit(url) => vec![url],
            Self::Volume(_, description) => description.urls_mut().collect(),
            Self::Path(_) | Self::Standard | Self::Export(_) => Vec::new(),
        }
    }

    /// Returns whether the location is reached by iSCSI.
    pub(crate) const fn has_units(&self) -> bool {
        matches!(self, Self::Unit(_) | Self::Volume(..))
    }

    /// Returns the file at the location, or the file that describes it.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Volume(path, _) => Some(path),
            Self::Standard | Self::Unit(_) | Self::Export(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parse(text: &str) -> Result<Location, Error> {
        Location::parse(OsStr::new(text), Side::Source).await
    }

    #[tokio::test]
    async fn locations_are_told_apart() {
        assert!(matches!(parse("-").await, Ok(Location::Standard)));
        assert!(matches!(parse("./-").await, Ok(Location::Path(_))));
        assert!(matches!(parse("disk.img").await, Ok(Location::Path(_))));
        assert!(matches!(parse("./volume:disk").await, Ok(Location::Path(_))));
        assert!(matches!(parse("folder/a:b").await, Ok(Location::Path(_))));
        assert!(matches!(parse("iscsi:disk").await, Err(Error::Refused(_))));
        assert!(matches!(parse("volume:/nowhere/disk").await, Err(Error::Volume { .. })));
        let url = parse("iscsi://host/iqn.2026-01.org.example:disk/0").await;
        assert!(matches!(url, Ok(Location::Unit(_))));
    }

    #[tokio::test]
    async fn half_a_url_is_refused_without_its_password() {
        for text in [
            "",
            "iscsi://user:secret@host",
            "iscsi://user:secret@host/iqn.2026-01.org.example:disk",
            "iscsi://user:secret@host/iqn.2026-01.org.example:disk/x",
            "http://user:secret@host/",
        ] {
            let error = parse(text).await.err().map(|error| error.to_string());
            assert!(error.is_some_and(|message| !message.contains("secret")), "{text}");
        }
    }
}
