//! Opens and describes the source and the destination of a copy: files, streams, units, exports and volumes.

pub mod awaited;
mod export;
mod file;
mod glance;
mod medium;
mod stream;
mod tuning;
mod unit;
mod volume;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use iscsi_copy::{Destination, Device, Identity, NbdUri, Source};
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::device::DeviceError;
use iscsi_initiator::{Error as IscsiError, Initiator};
use iscsi_tuner::Size;
use iscsi_volume::Description;
use serde_json::{Value, json};

use crate::end::awaited::Awaited;
use crate::error::Error;
use crate::location::Location;
use crate::side::Side;
use crate::stop::Stop;
use file::Opened;
use glance::Glance;

pub use export::ExportEnd;
pub use file::{Access, FileEnd};
pub(crate) use medium::Medium;
pub use stream::StreamEnd;
pub use unit::UnitEnd;
pub use volume::VolumeEnd;

const NO_IDENTITY: Error = Error::Program(ProgramError::Usage(Cow::Borrowed(
    "nothing proves an NBD export to be the same the next day; if you know that it is, name it by --source-id or --destination-id, or \
     leave --checkpoint and --digests out",
)));

/// The source or the destination of a copy.
#[derive(Clone, Debug)]
pub enum End {
    /// A regular file or a block device.
    File(FileEnd),
    /// A pipe, a terminal or the like.
    Stream(StreamEnd),
    /// A logical unit.
    Unit(Arc<UnitEnd>),
    /// An export of an NBD server.
    Export(ExportEnd),
    /// Several logical units as one device.
    Volume(Arc<VolumeEnd>),
}

impl End {
    /// Opens a location as a source. `bitmap` names a dirty bitmap of an export, which is read immediately.
    ///
    /// # Errors
    /// The location is wrong, or cannot be opened.
    pub async fn source(
        location: &Location,
        initiator: &Initiator,
        bitmap: Option<&str>,
    ) -> Result<Self, Error> {
        let side = Side::Source;
        match location {
            Location::Path(path) => Ok(file::open_source(path.clone()).await?.into()),
            Location::Standard => Ok(Self::Stream(StreamEnd::standard(side, false)?)),
            Location::Unit(url) => {
                Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into()))
            }
            Location::Export(uri) => Self::open_export(side, uri, initiator, bitmap).await,
            Location::Volume(path, description) => {
                Self::open_volume(side, path, description, initiator).await
            }
        }
    }

    /// Opens a location as a destination.
    ///
    /// # Errors
    /// The location is wrong, or cannot be opened.
    pub async fn destination(
        location: &Location,
        initiator: &Initiator,
        access: Access,
    ) -> Result<Self, Error> {
        let side = Side::Destination;
        match location {
            Location::Path(path) => Ok(file::open_destination(path.clone(), access).await?.into()),
            Location::Standard => {
                Ok(Self::Stream(StreamEnd::standard(side, access.overrides_use)?))
            }
            Location::Unit(url) => {
                Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into()))
            }
            Location::Export(uri) => Self::open_export(side, uri, initiator, None).await,
            Location::Volume(path, description) => {
                Self::open_volume(side, path, description, initiator).await
            }
        }
    }

    /// Opens the destination of a copy to read it back.
    ///
    /// # Errors
    /// The location is wrong, or cannot be opened.
    pub(crate) async fn read_back(
        location: &Location,
        initiator: &Initiator,
    ) -> Result<Self, Error> {
        let side = Side::Destination;
        match location {
            Location::Path(path) => Ok(file::open_copy(path.clone()).await?.into()),
            Location::Standard => Ok(Self::Stream(StreamEnd::standard(side, true)?)),
            Location::Unit(url) => {
                Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into()))
            }
            Location::Export(uri) => Self::open_export(side, uri, initiator, None).await,
            Location::Volume(path, description) => {
                Self::open_volume(side, path, description, initiator).await
            }
        }
    }

    async fn open_export(
        side: Side,
        uri: &NbdUri,
        initiator: &Initiator,
        bitmap: Option<&str>,
    ) -> Result<Self, Error> {
        let wait = initiator.options().open_timeout();
        Ok(Self::Export(ExportEnd::open(side, uri, wait, bitmap).await?))
    }

    async fn open_volume(
        side: Side,
        path: &Path,
        description: &Description,
        initiator: &Initiator,
    ) -> Result<Self, Error> {
        let volume = Box::pin(VolumeEnd::open(side, path, description, initiator)).await?;
        Ok(Self::Volume(volume.into()))
    }

    /// Returns the units of this source or destination, in their order. A file, a stream and an export have
    /// none.
    pub fn units(&self) -> &[UnitEnd] {
        match self {
            Self::Unit(unit) => std::slice::from_ref(unit),
            Self::Volume(volume) => volume.units(),
            Self::File(_) | Self::Stream(_) | Self::Export(_) => &[],
        }
    }

    /// Returns the number of concurrent reads or writes of `io_size` bytes that keep the units busy; `None`
    /// without units.
    pub fn queue_depth(&self, io_size: usize) -> Option<usize> {
        match self {
            Self::Unit(unit) => Some(unit.queue_depth(io_size)),
            Self::Volume(volume) => Some(volume.volume().queue_depth(io_size)),
            Self::File(_) | Self::Stream(_) | Self::Export(_) => None,
        }
    }

    /// Returns the number of concurrent reads of `io_size` bytes that keep the units busy, if there are no
    /// writes; `None` without units.
    pub fn read_depth(&self, io_size: usize) -> Option<usize> {
        match self {
            Self::Unit(unit) => Some(unit.read_depth(io_size)),
            Self::Volume(volume) => Some(volume.volume().read_depth(io_size)),
            Self::File(_) | Self::Stream(_) | Self::Export(_) => None,
        }
    }

    /// Returns whether the data go over a network link, which may be lost.
    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self, Self::Unit(_) | Self::Export(_) | Self::Volume(_))
    }

    /// Returns what the source or destination waits for at the moment; `None` if it does not wait.
    pub(crate) fn awaited(&self) -> Option<Awaited> {
        match self {
            Self::Export(export) => export.awaited(),
            Self::Unit(_) | Self::Volume(_) => self.units().iter().find_map(UnitEnd::awaited),
            Self::File(_) | Self::Stream(_) => None,
        }
    }

    /// Returns the texts that may be shown after the name in the heading (product, size, number of sessions), the
    /// longest first. The heading uses the first that fits.
    pub(crate) fn details(&self) -> Vec<String> {
        match self {
            Self::File(file) => file.size().into_iter().collect(),
            Self::Stream(_) => Vec::new(),
            Self::Unit(unit) => unit.details(),
            Self::Export(export) => vec![Size(export.device().capacity()).to_string()],
            Self::Volume(volume) => volume.details(),
        }
    }

    /// Returns whether bytes can only be read or written in sequence, and not be read back.
    pub const fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Returns whether the data go to standard output, so that text there would be mixed with them.
    pub(crate) fn is_standard_output(&self) -> bool {
        match self {
            Self::File(file) => file.is_standard_output(),
            Self::Stream(stream) => stream.is_standard_output(),
            Self::Unit(_) | Self::Export(_) | Self::Volume(_) => false,
        }
    }

    /// Removes a file that was created for this copy and is still empty.
    pub(crate) async fn remove_if_empty(&self) {
        if let Self::File(file) = self {
            file.remove_if_empty().await;
        }
    }

    /// Returns whether it is a regular file. A destination file becomes as long as the data copied to it.
    pub(crate) fn is_regular_file(&self) -> bool {
        matches!(self, Self::File(file) if file.is_regular())
    }

    /// Returns the source for a copy.
    pub fn to_source(&self) -> Source {
        match self {
            Self::File(file) => file.to_source(),
            Self::Stream(stream) => stream.to_source(),
            Self::Unit(unit) => Source::device(unit.disk().clone()),
            Self::Export(export) => Source::device(export.device().clone()),
            Self::Volume(volume) => Source::device(volume.volume().clone()),
        }
    }

    /// Returns the destination for a copy.
    pub fn to_destination(&self) -> Destination {
        match self {
            Self::File(file) => file.to_destination(),
            Self::Stream(stream) => stream.to_destination(),
            Self::Unit(unit) => Destination::device(unit.disk().clone()),
            Self::Export(export) => Destination::device(export.device().clone()),
            Self::Volume(volume) => Destination::device(volume.volume().clone()),
        }
    }

    /// Returns a device for a few reads of whole blocks before the copy; `None` for a stream.
    pub(crate) fn glance(&self) -> Option<Arc<dyn Device>> {
        Some(match self {
            Self::File(file) => Arc::new(file.device().clone()),
            Self::Stream(_) => return None,
            Self::Unit(unit) => Arc::new(Glance::new(unit.disk())),
            Self::Export(export) => Arc::new(export.device().clone()),
            Self::Volume(volume) => Arc::new(volume.volume().clone()),
        })
    }

    /// Returns the bytes of a logical block, the unit of partition tables; `None` without blocks.
    pub(crate) fn block_size(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.block_size(),
            Self::Unit(_) | Self::Volume(_) => {
                self.units().iter().map(|unit| unit.block_size() as u64).max()
            }
            Self::Stream(_) | Self::Export(_) => None,
        }
    }

    /// Returns the identity by which later runs recognise the source.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] for a stream; [`Error::Nameless`]; the error of the system.
    pub(crate) fn source_identity(&self) -> Result<Identity, Error> {
        match self {
            Self::File(file) => file.source_identity(),
            Self::Unit(unit) => unit.identity(),
            Self::Volume(volume) => Ok(volume.identity()),
            Self::Stream(_) => Err(ProgramError::usage(
                "a stream cannot be read again; leave --checkpoint out, or copy from a file or a unit",
            )
            .into()),
            Self::Export(_) => Err(NO_IDENTITY),
        }
    }

    /// Returns the identity by which later runs recognise a source that is written to during the copy.
    ///
    /// # Errors
    /// The errors of [`source_identity`](Self::source_identity).
    pub(crate) fn source_in_use_identity(&self) -> Result<Identity, Error> {
        match self {
            Self::File(file) => file.source_in_use_identity(),
            Self::Unit(_) | Self::Volume(_) | Self::Stream(_) | Self::Export(_) => {
                Ok(self.source_identity()?.in_use())
            }
        }
    }

    /// Returns the identity of a file. It changes when the file is written to. `None` for anything but a file,
    /// and if the system does not report the identity.
    pub(crate) fn file_identity(&self) -> Option<Identity> {
        if let Self::File(file) = self { file.source_identity().ok() } else { None }
    }

    /// Returns the identity by which later runs recognise the destination.
    ///
    /// # Errors
    /// The errors of [`source_identity`](Self::source_identity).
    pub(crate) fn destination_identity(&self) -> Result<Identity, Error> {
        match self {
            Self::File(file) => file.destination_identity(),
            Self::Unit(unit) => unit.identity(),
            Self::Volume(volume) => Ok(volume.identity()),
            Self::Stream(_) => Err(ProgramError::usage(
                "what a stream got is gone; leave --checkpoint out, or copy to a file or a unit",
            )
            .into()),
            Self::Export(_) => Err(NO_IDENTITY),
        }
    }

    /// Returns the identity by the name `id` that the user gives, or `identity` without one. A stream has no identity, whatever its
    /// name.
    ///
    /// # Errors
    /// The error of `identity`, unless the name makes up for it.
    pub(crate) fn renamed(
        &self,
        id: Option<&str>,
        identity: Result<Identity, Error>,
    ) -> Result<Identity, Error> {
        let Some(id) = id.filter(|_| !self.is_stream()) else { return identity };
        let name = format!("called {id}");
        match identity {
            Ok(identity) => Ok(identity.renamed(&name)),
            Err(error) if error.is_of_no_identity() => {
                Ok(Identity::new(&name, self.to_source().length().unwrap_or_default()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the name of the source or destination.
    pub(crate) fn name(&self) -> Arc<str> {
        match self {
            Self::File(file) => Arc::clone(file.name()),
            Self::Stream(stream) => Arc::clone(stream.name()),
            Self::Unit(unit) => unit.name().into(),
            Self::Export(export) => Arc::clone(export.name()),
            Self::Volume(volume) => Arc::clone(volume.name()),
        }
    }

    /// Returns the error for a failure of this source or destination. `side` says which of them it is.
    pub(crate) fn failed(&self, side: Side, cause: impl Into<DeviceError>) -> Error {
        let cause = cause.into();
        match cause.source_as::<IscsiError>() {
            Some(_) => Error::Unit { side, cause },
            None => Error::File { side, name: self.name(), cause },
        }
    }

    /// Sets the length of reads and writes in bytes.
    #[must_use]
    pub fn with_io_size(self, io_size: usize) -> Self {
        match self {
            Self::Unit(unit) => Self::Unit(Arc::unwrap_or_clone(unit).with_io_size(io_size).into()),
            Self::Volume(volume) => {
                Self::Volume(Arc::unwrap_or_clone(volume).with_io_size(io_size).into())
            }
            Self::File(_) | Self::Stream(_) | Self::Export(_) => self,
        }
    }

    /// Returns the identity of each medium. A medium has the same identity under all its names. A stream has no
    /// medium, and a volume has one per unit.
    pub(crate) fn media(&self) -> Vec<Medium> {
        match self {
            Self::File(file) => vec![Medium::File(file.id())],
            Self::Stream(_) => Vec::new(),
            Self::Unit(_) | Self::Volume(_) => self.units().iter().map(UnitEnd::medium).collect(),
            Self::Export(export) => vec![Medium::Export(Arc::clone(export.name()))],
        }
    }

    /// Returns the kind of medium if `self` and `other` are the same medium: a copy onto itself would destroy
    /// data.
    pub(crate) fn same_as(&self, other: &Self) -> Option<&'static str> {
        let others = other.media();
        let medium = self.media().into_iter().find(|medium| others.contains(medium))?;
        Some(match medium {
            Medium::File(_) | Medium::Entry(..) => "file",
            Medium::Unit(_) => "unit",
            Medium::Export(_) => "export",
        })
    }

    /// Returns the description as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::File(file) => json!({ "kind": file.kind(), "name": &**file.name() }),
            Self::Stream(stream) => json!({ "kind": "stream", "name": &**stream.name() }),
            Self::Unit(unit) => unit.to_json(),
            Self::Export(export) => export.to_json(),
            Self::Volume(volume) => volume.to_json(),
        }
    }

    /// Logs out of the units. Other kinds need no logout.
    ///
    /// # Errors
    /// If the target may still execute a write that was sent to it.
    pub async fn close(&self, stop: &Stop) -> Result<(), Error> {
        match self {
            Self::Unit(unit) => unit.close(stop).await,
            Self::Volume(volume) => volume.close(stop).await,
            Self::File(_) | Self::Stream(_) | Self::Export(_) => Ok(()),
        }
    }
}

impl From<Opened> for End {
    fn from(opened: Opened) -> Self {
        match opened {
            Opened::Seekable(file) => Self::File(file),
            Opened::Stream(stream) => Self::Stream(stream),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Stream(stream) => stream.fmt(f),
            Self::Unit(unit) => unit.fmt(f),
            Self::Export(export) => export.fmt(f),
            Self::Volume(volume) => volume.fmt(f),
        }
    }
}
