//! The ends of a copy: files, streams and units.

mod file;
mod stream;
mod unit;

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_initiator::Initiator;
use serde_json::{Value, json};

use crate::error::Error;
use crate::place::{Place, Side};
use crate::stop::Stop;
use file::Opened;

pub use file::FileEnd;
pub use stream::StreamEnd;
pub use unit::UnitEnd;

/// Where bytes come from. Clones are the same source.
pub trait Source: Clone + Send + Sync + 'static {
    /// How many bytes there are, if that is known before they are read.
    fn length(&self) -> Option<u64>;

    /// Whether bytes come in order only, one read at a time.
    fn is_sequential(&self) -> bool;

    /// How many bytes one read had better fetch, where that is more than a chunk.
    fn stride(&self) -> usize {
        1
    }

    /// How many reads of `io_size` bytes keep it busy by now; `None` if it has no opinion.
    fn queue_depth(&self, _io_size: usize) -> Option<usize> {
        None
    }

    /// Reads `len` bytes from `offset` on; fewer only where a sequential source ends.
    ///
    /// # Errors
    /// As the kind of source has it.
    fn read(&self, offset: u64, len: usize) -> impl Future<Output = Result<Bytes, Error>> + Send;

    /// Takes back what it has read, when nobody needs it any more.
    fn take_back(&self, _data: Bytes) {}
}

/// Where bytes go. Clones are the same destination.
pub trait Destination: Clone + Send + Sync + 'static {
    /// How many bytes fit; `None` if nothing limits them.
    fn capacity(&self) -> Option<u64>;

    /// Whether bytes must come in order, one write at a time.
    fn is_sequential(&self) -> bool;

    /// How many writes of `io_size` bytes keep it busy by now; `None` if it has no opinion.
    fn queue_depth(&self, _io_size: usize) -> Option<usize> {
        None
    }

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// As the kind of destination has it.
    fn write(&self, offset: u64, data: Bytes) -> impl Future<Output = Result<(), Error>> + Send;

    /// Brings what was written, `length` bytes, onto the medium.
    ///
    /// # Errors
    /// As the kind of destination has it.
    fn flush(&self, length: u64) -> impl Future<Output = Result<(), Error>> + Send;
}

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
    /// Opens a place to read from.
    ///
    /// # Errors
    /// What is wrong with the place, or the way to it.
    pub async fn source(place: &Place, initiator: &Initiator) -> Result<Self, Error> {
        let side = Side::Source;
        match place {
            Place::Path(path) => Ok(file::open_source(path.clone()).await?.into()),
            Place::Standard => Ok(Self::Stream(StreamEnd::standard(side)?)),
            Place::Unit(url) => Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into())),
        }
    }

    /// Opens a place to write to, and to read back from if it shall be verified.
    ///
    /// # Errors
    /// What is wrong with the place, or the way to it.
    pub async fn destination(
        place: &Place,
        initiator: &Initiator,
        verify: bool,
    ) -> Result<Self, Error> {
        let side = Side::Destination;
        match place {
            Place::Path(path) => Ok(file::open_destination(path.clone(), verify).await?.into()),
            Place::Standard => Ok(Self::Stream(StreamEnd::standard(side)?)),
            Place::Unit(url) => Ok(Self::Unit(UnitEnd::open(side, url, initiator).await?.into())),
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
    pub async fn close(&self, stop: &Stop) {
        if let Self::Unit(unit) = self {
            unit.close(stop).await;
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

/// Runs what may block in a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}
