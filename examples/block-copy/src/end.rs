//! The ends of a copy: files, streams and units.

mod blocking;
mod destination;
mod file;
mod source;
mod stream;
mod unit;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_initiator::Initiator;
use serde_json::{Value, json};

use crate::error::Error;
use crate::location::Location;
use crate::side::Side;
use crate::stop::Stop;
use file::Opened;

pub use destination::Destination;
pub use file::FileEnd;
pub use source::Source;
pub use stream::StreamEnd;
pub use unit::UnitEnd;

/// An end of a copy.
#[derive(Clone, Debug)]
pub enum End {
    /// A regular file or a block device.
    File(FileEnd),
    /// A pipe, a terminal and their like.
    Stream(StreamEnd),
    /// A logical unit.
    Unit(Arc<UnitEnd>),
}

impl End {
    /// Opens a location to read from.
    ///
    /// # Errors
    /// What is wrong with the location, or the way to it.
    pub async fn source(location: &Location, initiator: &Initiator) -> Result<Self, Error> {
        let side = Side::Source;
        match location {
            Location::Path(path) => Ok(file::open_source(path.clone()).await?.into()),
            Location::Standard => Ok(Self::Stream(StreamEnd::standard(side)?)),
            Location::Unit(url) => {
                Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into()))
            }
        }
    }

    /// Opens a location to write to, and to read back from if it shall be verified.
    ///
    /// # Errors
    /// What is wrong with the location, or the way to it.
    pub async fn destination(
        location: &Location,
        initiator: &Initiator,
        verify: bool,
    ) -> Result<Self, Error> {
        let side = Side::Destination;
        match location {
            Location::Path(path) => Ok(file::open_destination(path.clone(), verify).await?.into()),
            Location::Standard => Ok(Self::Stream(StreamEnd::standard(side)?)),
            Location::Unit(url) => {
                Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into()))
            }
        }
    }

    /// The unit, if this is one.
    pub fn unit(&self) -> Option<&UnitEnd> {
        if let Self::Unit(unit) = self { Some(unit) } else { None }
    }

    /// The same end, for reads and writes of `io_size` bytes.
    #[must_use]
    pub fn with_io_size(self, io_size: usize) -> Self {
        match self {
            Self::Unit(unit) => Self::Unit(Arc::unwrap_or_clone(unit).with_io_size(io_size).into()),
            Self::File(_) | Self::Stream(_) => self,
        }
    }

    /// What both ends are, if they are the same: a copy onto itself destroys.
    pub fn same_as(&self, other: &Self) -> Option<&'static str> {
        match (self, other) {
            (Self::File(one), Self::File(other)) => one.is(other).then_some("file"),
            (Self::Unit(one), Self::Unit(other)) => one.is(other).then_some("unit"),
            (Self::File(_) | Self::Stream(_) | Self::Unit(_), _) => None,
        }
    }

    /// What this is, for programs.
    pub fn to_json(&self) -> Value {
        match self {
            Self::File(file) => json!({ "kind": file.kind(), "name": file.name() }),
            Self::Stream(stream) => json!({ "kind": "stream", "name": stream.name() }),
            Self::Unit(unit) => unit.to_json(),
        }
    }

    /// Ends the sessions of a unit in order; others end by themselves.
    ///
    /// # Errors
    /// If the target may still carry out what was sent to it.
    pub async fn close(&self, stop: &Stop) -> Result<(), Error> {
        if let Self::Unit(unit) = self { unit.close(stop).await } else { Ok(()) }
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

impl Source for End {
    fn length(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.length(),
            Self::Stream(stream) => stream.length(),
            Self::Unit(unit) => unit.length(),
        }
    }

    fn is_sequential(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    fn stride(&self) -> usize {
        match self {
            Self::File(file) => file.stride(),
            Self::Stream(_) | Self::Unit(_) => 1,
        }
    }

    fn queue_depth(&self, io_size: usize) -> Option<usize> {
        self.unit().map(|unit| unit.queue_depth(io_size))
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        match self {
            Self::File(file) => file.read(offset, len).await,
            Self::Stream(stream) => stream.read(offset, len).await,
            Self::Unit(unit) => unit.read(offset, len).await,
        }
    }

    fn take_back(&self, data: Bytes) {
        match self {
            Self::File(file) => file.take_back(data),
            Self::Stream(stream) => stream.take_back(data),
            Self::Unit(unit) => unit.take_back(data),
        }
    }
}

impl Destination for End {
    fn capacity(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.capacity(),
            Self::Stream(_) => None,
            Self::Unit(unit) => unit.capacity(),
        }
    }

    fn is_sequential(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    fn queue_depth(&self, io_size: usize) -> Option<usize> {
        self.unit().map(|unit| unit.queue_depth(io_size))
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        match self {
            Self::File(file) => file.write(offset, data).await,
            Self::Stream(stream) => stream.write(offset, data).await,
            Self::Unit(unit) => unit.write(offset, data).await,
        }
    }

    async fn flush(&self, length: u64) -> Result<(), Error> {
        match self {
            Self::File(file) => file.flush(length).await,
            Self::Stream(stream) => stream.flush(length).await,
            Self::Unit(unit) => unit.flush(length).await,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Stream(stream) => stream.fmt(f),
            Self::Unit(unit) => unit.fmt(f),
        }
    }
}
