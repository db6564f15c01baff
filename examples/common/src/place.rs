//! Opens the units and volumes that the command line names, and creates the initiator that opens them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use iscsi_initiator::device::Device;
use iscsi_initiator::{Disk, Error, ErrorKind, Initiator, Options, Url, UrlError};
use iscsi_volume::{Description, Volume};
use thiserror::Error as ThisError;

use crate::failure::Kind;
use crate::sentence::Sentence;
use crate::volume::{self, VolumeError};

/// A unit or a volume, as the command line names it.
#[derive(Clone, Debug)]
pub enum Place {
    /// A logical unit.
    Unit(Box<Url>),
    /// Several units as one device: the path of the file that describes them, and the description.
    Volume(PathBuf, Box<Description>),
}

/// An opened unit or volume. Clones are separate handles.
#[derive(Clone, Debug)]
pub enum Opened {
    /// A logical unit.
    Unit(Box<Disk>),
    /// Several units as one device.
    Volume(Box<Volume<Disk>>),
}

/// Reasons why a place cannot be opened.
#[derive(Debug, ThisError)]
pub enum PlaceError {
    /// The URL is wrong, or the unit cannot be opened.
    #[error("{}", .0.sentence())]
    Unit(#[from] Error),
    /// The volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl PlaceError {
    /// Returns the kind of the failure, by the side at fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unit(cause) => cause.fault().into(),
            Self::Volume(cause) => cause.kind(),
        }
    }
}

impl Place {
    /// Parses the URL of a unit, or `volume:FILE`, and then reads that file.
    ///
    /// # Errors
    /// The URL or the file is wrong. The message contains no password.
    pub async fn parse(text: &str) -> Result<Self, PlaceError> {
        match volume::path(OsStr::new(text)) {
            Some(path) => {
                let description = volume::load(&path).await?;
                Ok(Self::Volume(path, description.into()))
            }
            None => Ok(Self::Unit(parse_url(text)?.into())),
        }
    }

    /// Returns the URLs of the units, so that passwords can be added to them.
    pub fn urls_mut(&mut self) -> Vec<&mut Url> {
        match self {
            Self::Unit(url) => vec![url],
            Self::Volume(_, description) => description.urls_mut().collect(),
        }
    }

    /// Opens the unit or the volume.
    ///
    /// # Errors
    /// If a unit cannot be opened, or is not the unit that the description expects.
    pub async fn open(&self, initiator: &Initiator) -> Result<Opened, PlaceError> {
        Ok(match self {
            Self::Unit(url) => Opened::Unit(initiator.disk(&**url).await?.into()),
            Self::Volume(path, description) => {
                Opened::Volume(volume::open(path, description, initiator).await?.into())
            }
        })
    }
}

impl Opened {
    /// Returns a separate handle of the unit or volume.
    #[must_use]
    pub fn handle(&self) -> Arc<dyn Device> {
        match self {
            Self::Unit(disk) => Arc::new(Disk::clone(disk)),
            Self::Volume(volume) => Arc::new(Volume::clone(volume)),
        }
    }

    /// Returns the units in their order; a single unit is a list of one.
    #[must_use]
    pub fn disks(&self) -> Vec<&Disk> {
        match self {
            Self::Unit(disk) => vec![disk],
            Self::Volume(volume) => volume.members().iter().map(|member| member.device()).collect(),
        }
    }

    /// Logs out of all units, one after the other.
    ///
    /// # Errors
    /// The error of a unit that may still execute a request; otherwise the first error. See
    /// [`Disk::logout`].
    pub async fn logout(&self) -> Result<(), Error> {
        let mut failed = Ok(());
        for disk in self.disks() {
            let ended = disk.logout().await;
            if ended.as_ref().is_err_and(is_unsettled) || failed.is_ok() {
                failed = ended;
            }
        }
        failed
    }
}

/// Parses the URL of a logical unit.
///
/// # Errors
/// The URL is wrong, or names no unit ([`UrlError::PortalOnly`], [`UrlError::NoUnit`]). The message does not contain
/// its password.
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

/// Returns the initiator with the name `name`, or with a name made from this host's name and identity. It encrypts the connections
/// of URLs that ask for TLS, if this program has the feature `tls`.
///
/// # Errors
/// If the name is invalid.
pub fn initiator(name: Option<&str>, options: Options) -> Result<Initiator, Error> {
    #[cfg(feature = "tls")]
    let options = options.with_tls(Arc::new(iscsi_tls::Rustls::default()));
    match name {
        Some(name) => Initiator::with_options(name, options),
        None => Initiator::with_default_name(options),
    }
}

/// Returns whether the target may still execute a write of a lost session.
fn is_unsettled(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsettled
}

/// Returns the portals of a disk's sessions, each once. If the target has redirected logins, they differ from
/// those of the URL.
#[must_use]
pub fn portals(disk: &Disk) -> Vec<String> {
    let portals = disk.stats().sessions.into_iter().map(|session| session.portal);
    portals.collect::<BTreeSet<_>>().into_iter().collect()
}

impl From<Disk> for Opened {
    fn from(disk: Disk) -> Self {
        Self::Unit(disk.into())
    }
}
