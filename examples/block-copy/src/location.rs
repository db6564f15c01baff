//! Where bytes come from or go to, as the command line names it.

use std::ffi::OsStr;
use std::path::PathBuf;

use iscsi_copy::{NbdError, NbdUri};
use iscsi_examples_common::unit;
use iscsi_initiator::Url;

use crate::error::Error;
use crate::side::Side;

/// A location that can be copied from or to.
#[derive(Clone, Debug)]
pub enum Location {
    /// A file, of any kind.
    Path(PathBuf),
    /// Standard input or output, by the side.
    Standard,
    /// A logical unit.
    Unit(Box<Url>),
    /// What an NBD server exports.
    Export(NbdUri),
}

impl Location {
    /// Reads an argument. Whatever has `://` in it is a URL; a path that has can be written with a
    /// `./` before it and a single slash.
    ///
    /// # Errors
    /// [`Error::Usage`] for an empty argument, [`Error::Unit`] for a URL that is malformed or names
    /// no logical unit.
    pub fn parse(argument: &OsStr, side: Side) -> Result<Self, Error> {
        match argument.to_str() {
            Some("") => Err(Error::Usage(
                "a source or destination is empty; name a path, -, an iscsi:// URL or an nbd:// URI",
            )),
            Some("-") => Ok(Self::Standard),
            Some(text) if NbdUri::is_meant_by(text) => {
                text.parse().map(Self::Export).map_err(|cause: NbdError| Error::Nbd { side, cause })
            }
            Some(text) if text.contains("://") => {
                let url = unit::parse_url(text).map_err(|cause| Error::Unit { side, cause })?;
                Ok(Self::Unit(Box::new(url)))
            }
            _ => Ok(Self::Path(argument.into())),
        }
    }

    /// The URL, if it is one.
    pub(crate) fn url_mut(&mut self) -> Option<&mut Url> {
        if let Self::Unit(url) = self { Some(url) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, Error> {
        Location::parse(OsStr::new(text), Side::Source)
    }

    #[test]
    fn locations_are_told_apart() {
        assert!(matches!(parse("-"), Ok(Location::Standard)));
        assert!(matches!(parse("./-"), Ok(Location::Path(_))));
        assert!(matches!(parse("disk.img"), Ok(Location::Path(_))));
        assert!(matches!(
            parse("iscsi://host/iqn.2026-01.org.example:disk/0"),
            Ok(Location::Unit(_))
        ));
    }

    #[test]
    fn half_a_url_is_refused_without_its_password() {
        for text in [
            "",
            "iscsi://user:secret@host",
            "iscsi://user:secret@host/iqn.2026-01.org.example:disk",
            "iscsi://user:secret@host/iqn.2026-01.org.example:disk/x",
            "http://user:secret@host/",
        ] {
            let error = parse(text).err().map(|error| error.to_string());
            assert!(error.is_some_and(|message| !message.contains("secret")), "{text}");
        }
    }
}
