//! The things that the command line names to be opened: a unit, or a volume of several.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use iscsi_initiator::device::Device;
use iscsi_initiator::{Disk, Error, ErrorKind, Initiator, Url};
use iscsi_volume::{Description, Volume};
use thiserror::Error as ThisError;

use crate::failure::Kind;
use crate::sentence::Sentence;
use crate::unit;
use crate::volume::{self, VolumeError};

/// A unit or a volume, as the command line names it.
#[derive(Clone, Debug)]
pub enum Place {
    /// A logical unit.
    Unit(Box<Url>),
    /// Several units, and the file that says so.
    Volume(PathBuf, Box<Description>),
}

/// An opened unit or volume. Clones are the same, and each is a handle of its own.
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
    /// The URL, or the unit.
    #[error("{}", .0.sentence())]
    Unit(#[from] Error),
    /// The volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl PlaceError {
    /// Returns whose fault it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unit(cause) => cause.fault().into(),
            Self::Volume(cause) => cause.kind(),
        }
    }
}

impl Place {
    /// Reads the URL of a unit, or `volume:FILE` and that file.
    ///
    /// # Errors
    /// What is wrong with it; no password is repeated.
    pub async fn parse(text: &str) -> Result<Self, PlaceError> {
        match volume::path(OsStr::new(text)) {
            Some(path) => {
                let description = volume::load(&path).await?;
                Ok(Self::Volume(path, description.into()))
            }
            None => Ok(Self::Unit(unit::parse_url(text)?.into())),
        }
    }

    /// The URLs of its units, to give them passwords.
    pub fn urls_mut(&mut self) -> Vec<&mut Url> {
        match self {
            Self::Unit(url) => vec![url],
            Self::Volume(_, description) => description.urls_mut().collect(),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// When a unit cannot be had, or is not the one that it should be.
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
    /// A handle of its own, as a device of bytes.
    #[must_use]
    pub fn handle(&self) -> Arc<dyn Device> {
        match self {
            Self::Unit(disk) => Arc::new(Disk::clone(disk)),
            Self::Volume(volume) => Arc::new(Volume::clone(volume)),
        }
    }

    /// The units that it consists of, in their order.
    #[must_use]
    pub fn disks(&self) -> Vec<&Disk> {
        match self {
            Self::Unit(disk) => vec![disk],
            Self::Volume(volume) => volume.members().iter().map(|member| member.device()).collect(),
        }
    }

    /// Ends the sessions with all of its units in order, one after the other.
    ///
    /// # Errors
    /// That of a unit that may still carry out what was sent to it; otherwise the first that there was. See
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

/// Whether the target may still carry out a write of a lost session.
fn is_unsettled(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsettled
}

/// The portals that the sessions of a disk are with, each once: not those of its URL where logins were redirected.
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
