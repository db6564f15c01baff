//! The destination of a copy.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_block_device::{Device, DeviceError, DeviceErrorKind, DeviceLimits, DeviceResult};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use super::file::{FileDevice, local_depth};
use super::identity::Identity;
use super::mark::Mark;
use super::pipe::Pipe;
use super::window::Window;
use crate::error::CopyError;

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The destination of a copy: a device, a file or a stream.
#[derive(Clone)]
pub struct Destination {
    kind: Kind,
    mark: Mark,
}

#[derive(Clone)]
enum Kind {
    /// A device, with a fixed capacity.
    Device(Arc<dyn Device>),
    /// A regular file, which ends up as long as the copied data.
    File(FileDevice),
    /// A regular file from an offset on. The bytes before the offset and after the copied data stay.
    FilePart(FileDevice, u64),
    /// A stream, written from its current position on.
    Stream(Arc<Mutex<Writer>>),
    /// A file as a stream, written on tokio's blocking threads.
    Pipe(Pipe),
}

impl Destination {
    /// Writes to a device, such as a block device or a disk.
    pub fn device(device: impl Device + 'static) -> Self {
        let device: Arc<dyn Device> = Arc::new(device);
        Self { kind: Kind::Device(Arc::clone(&device)), mark: Mark::of(device) }
    }

    /// Writes to a regular file, which ends up as long as the copied data, or to a block device.
    pub fn file(file: FileDevice) -> Self {
        if file.is_block_device() {
            return Self::device(file);
        }
        let mark = Mark::of(Arc::new(file.clone()));
        Self { kind: Kind::File(file.growing()), mark }
    }

    /// Writes to a stream, such as a pipe or a socket. It receives all bytes in order, zeros included.
    pub fn stream(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let kind = Kind::Stream(Arc::new(Mutex::new(Box::new(writer))));
        Self { kind, mark: Mark::NONE }
    }

    /// Writes to a file as a stream, from its position on: a pipe, a terminal, a file that another program
    /// has opened. It is written in whole requests on tokio's blocking threads, and receives the same bytes
    /// as a [stream](Self::stream). A flush syncs a regular file or a block device.
    pub fn pipe(file: impl Into<Arc<File>>) -> Self {
        Self { kind: Kind::Pipe(Pipe::new(file.into())), mark: Mark::NONE }
    }

    /// Sets the offset of the copied data at the destination to `start`. The bytes before it and after the
    /// copied data stay. On a stream, which has no positions, it has no effect.
    #[must_use]
    pub fn from_byte(self, start: u64) -> Self {
        let kind = match self.kind {
            Kind::Device(device) => Kind::Device(Arc::new(Window::new(device, start..u64::MAX))),
            Kind::File(file) => Kind::FilePart(file, start),
            Kind::FilePart(file, before) => Kind::FilePart(file, before.saturating_add(start)),
            Kind::Stream(_) | Kind::Pipe(_) => self.kind,
        };
        Self { kind, mark: self.mark.part(&(start..u64::MAX)) }
    }

    /// Sets the identity by which [`CopyJob::resume_from`](crate::CopyJob::resume_from) recognizes the device
    /// in a later run. A device with a [name](Device::name), such as a unit or a [`FileDevice`], does not
    /// need it; any other device does.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.mark = self.mark.given(identity);
        self
    }

    /// Returns the identity by which a later run recognizes the destination.
    pub(crate) fn identity(&self) -> DeviceResult<Identity> {
        if self.is_sequential() {
            let why =
                "a stream cannot be written from the middle on, so a copy to it cannot be resumed";
            return Err(DeviceError::new(DeviceErrorKind::Unsupported, why));
        }
        self.mark.destination()
    }

    /// Returns the number of bytes that fit; `None` if nothing limits them.
    pub fn capacity(&self) -> Option<u64> {
        match &self.kind {
            Kind::Device(device) => Some(device.capacity()),
            Kind::File(_) | Kind::FilePart(..) | Kind::Stream(_) | Kind::Pipe(_) => None,
        }
    }

    /// Checks that `needed` bytes fit; `None` means that the number is unknown. If a device seems too small,
    /// its capacity is queried again, because it may have grown.
    pub(crate) async fn fits(&self, needed: Option<u64>) -> Result<(), CopyError> {
        let Kind::Device(device) = &self.kind else { return Ok(()) };
        let fits = |needed: u64| needed <= device.capacity();
        if !needed.is_some_and(fits) {
            device.confirm().await.map_err(CopyError::Destination)?;
        }
        match needed.filter(|needed| !fits(*needed)) {
            Some(needed) => Err(CopyError::TooSmall { capacity: device.capacity(), needed }),
            None => Ok(()),
        }
    }

    /// Returns the limits of the destination; for a stream, the default limits.
    pub(crate) fn limits(&self) -> DeviceLimits {
        self.device_ref().map_or_else(DeviceLimits::default, Device::limits)
    }

    /// Returns the device that reads and writes any range; `None` for a stream.
    pub(crate) fn device_ref(&self) -> Option<&dyn Device> {
        match &self.kind {
            Kind::Device(device) => Some(device.as_ref()),
            Kind::File(file) | Kind::FilePart(file, _) => Some(file),
            Kind::Stream(_) | Kind::Pipe(_) => None,
        }
    }

    /// Returns the device that reads and writes any range, for use in tasks; `None` for a stream.
    pub(crate) fn shared(&self) -> Option<Arc<dyn Device>> {
        match &self.kind {
            Kind::Device(device) => Some(Arc::clone(device)),
            Kind::File(file) => Some(Arc::new(file.clone())),
            Kind::FilePart(file, start) => {
                Some(Arc::new(Window::new(Arc::new(file.clone()), *start..u64::MAX)))
            }
            Kind::Stream(_) | Kind::Pipe(_) => None,
        }
    }

    pub(crate) const fn is_sequential(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Pipe(_))
    }

    /// Returns whether the destination is a whole regular file, which ends where the copy ends.
    pub(crate) const fn is_regular_file(&self) -> bool {
        matches!(self.kind, Kind::File(_))
    }

    /// Returns whether the destination is a regular file, or a part of one.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File(_) | Kind::FilePart(..))
    }

    /// Returns the present length of a regular file, counted from the offset where it is written; `None` for
    /// other destinations.
    pub(crate) fn file_len(&self) -> io::Result<Option<u64>> {
        match &self.kind {
            Kind::File(file) => Ok(Some(file.metadata()?.len())),
            Kind::FilePart(file, start) => Ok(Some(file.metadata()?.len().saturating_sub(*start))),
            Kind::Device(_) | Kind::Stream(_) | Kind::Pipe(_) => Ok(None),
        }
    }

    /// Returns whether a flush may report lost writes, which must be repeated.
    pub(crate) const fn may_lose(&self) -> bool {
        matches!(self.kind, Kind::Device(_))
    }

    /// Returns how many concurrent writes of `io_size` bytes keep the destination busy; for a stream, how many
    /// writes may wait.
    pub(crate) fn queue_depth(&self, io_size: usize) -> usize {
        let device = self.device_ref().map(|device| device.queue_depth(io_size));
        device.unwrap_or_else(|| local_depth(io_size)).max(1)
    }

    /// Sets the length of a file to the number of copied bytes, if it is known. A part of a file only becomes
    /// long enough.
    pub(crate) async fn set_len(&self, len: Option<u64>) -> DeviceResult<()> {
        match (&self.kind, len) {
            (Kind::File(file), Some(len)) => Ok(file.clone().set_len(len).await?),
            (Kind::FilePart(file, start), Some(len)) => {
                Ok(file.lengthen(start.saturating_add(len)).await?)
            }
            (
                Kind::File(_)
                | Kind::FilePart(..)
                | Kind::Device(_)
                | Kind::Stream(_)
                | Kind::Pipe(_),
                _,
            ) => Ok(()),
        }
    }

    pub(crate) async fn write(&self, offset: u64, data: Bytes) -> DeviceResult<()> {
        match &self.kind {
            Kind::Device(device) => device.write_at(offset, vec![data]).await,
            Kind::File(file) => file.write_at(offset, vec![data]).await,
            Kind::FilePart(file, start) => file.write_at(start + offset, vec![data]).await,
            Kind::Stream(writer) => Ok(writer.lock().await.write_all(&data).await?),
            Kind::Pipe(pipe) => Ok(pipe.write(data).await?),
        }
    }

    /// Writes zeros; a stream does not support that.
    pub(crate) async fn write_zeroes(&self, offset: u64, len: u64) -> DeviceResult<()> {
        match &self.kind {
            Kind::Device(device) => device.write_zeroes(offset, len).await,
            Kind::File(file) => file.write_zeroes(offset, len).await,
            Kind::FilePart(file, start) => file.write_zeroes(start + offset, len).await,
            Kind::Stream(_) | Kind::Pipe(_) => Err(DeviceErrorKind::Unsupported.into()),
        }
    }

    /// Flushes what was written, and confirms that the device is still the one that was written to. With
    /// `len`, at the end of the copy, a file gets that length.
    pub(crate) async fn flush(&self, len: Option<u64>) -> DeviceResult<()> {
        self.set_len(len).await?;
        match &self.kind {
            Kind::Device(device) => {
                device.flush().await?;
                // Another device that has taken the place of this one would also report a successful flush.
                device.confirm().await
            }
            Kind::File(file) | Kind::FilePart(file, _) => file.flush().await,
            Kind::Stream(writer) => Ok(writer.lock().await.flush().await?),
            Kind::Pipe(pipe) => Ok(pipe.flush().await?),
        }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Device(device) => device.fmt(f),
            Kind::File(file) | Kind::FilePart(file, _) => file.fmt(f),
            Kind::Stream(_) => f.write_str("Stream"),
            Kind::Pipe(pipe) => pipe.fmt(f),
        }
    }
}
