//! Where bytes go.

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
    /// A device that has its capacity.
    Device(Arc<dyn Device>),
    /// A regular file, which ends up as long as what was copied.
    File(FileDevice),
    /// The bytes of a regular file from one on; the others stay.
    FilePart(FileDevice, u64),
    /// What comes next, and nothing else.
    Stream(Arc<Mutex<Writer>>),
    /// The same, by threads that may block.
    Pipe(Pipe),
}

impl Destination {
    /// Writes to a device: a block device, a disk.
    pub fn device(device: impl Device + 'static) -> Self {
        let device: Arc<dyn Device> = Arc::new(device);
        Self { kind: Kind::Device(Arc::clone(&device)), mark: Mark::of(device) }
    }

    /// Writes to a regular file, which ends up as long as what was copied; or to a block device.
    pub fn file(file: FileDevice) -> Self {
        if file.is_block_device() {
            return Self::device(file);
        }
        let mark = Mark::of(Arc::new(file.clone()));
        Self { kind: Kind::File(file.growing()), mark }
    }

    /// Writes to a stream: a pipe, a socket. It gets all bytes in order, zeros as well.
    pub fn stream(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let kind = Kind::Stream(Arc::new(Mutex::new(Box::new(writer))));
        Self { kind, mark: Mark::NONE }
    }

    /// Writes to a file as a stream, from its position on: a pipe, a terminal, a file that another program has opened.
    /// It is written in whole requests, on the threads of tokio that may block, and gets what a
    /// [stream](Self::stream) gets. A regular file or a block device is synced at a flush.
    pub fn pipe(file: impl Into<Arc<File>>) -> Self {
        Self { kind: Kind::Pipe(Pipe::new(file.into())), mark: Mark::NONE }
    }

    /// Writes from this byte on: the bytes before it are left alone, and so are those behind what is copied. A stream has no
    /// places, and stays as it is.
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

    /// Sets the identity by which [`CopyJob::resume_from`](crate::CopyJob::resume_from) recognizes the device in a later run.
    /// A device that has a [name](Device::name), such as a unit or a [`FileDevice`], has one without it; any other device needs it.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.mark = self.mark.given(identity);
        self
    }

    /// The identity by which a later run recognizes it.
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

    /// Makes sure that so many bytes fit, or an unknown number. A device that may be too small is asked once more:
    /// it may have grown, and not have said so yet.
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

    /// What it can do; a stream can do little.
    pub(crate) fn limits(&self) -> DeviceLimits {
        self.device_ref().map_or_else(DeviceLimits::default, Device::limits)
    }

    /// What any range can be written to, and read from.
    pub(crate) fn device_ref(&self) -> Option<&dyn Device> {
        match &self.kind {
            Kind::Device(device) => Some(device.as_ref()),
            Kind::File(file) | Kind::FilePart(file, _) => Some(file),
            Kind::Stream(_) | Kind::Pipe(_) => None,
        }
    }

    /// The same, for tasks.
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

    /// Whether it ends where the copy ends.
    pub(crate) const fn is_regular_file(&self) -> bool {
        matches!(self.kind, Kind::File(_))
    }

    /// Whether it is a regular file, or a part of one.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File(_) | Kind::FilePart(..))
    }

    /// How many bytes a regular file has now, from where it is written on.
    pub(crate) fn file_len(&self) -> io::Result<Option<u64>> {
        match &self.kind {
            Kind::File(file) => Ok(Some(file.metadata()?.len())),
            Kind::FilePart(file, start) => Ok(Some(file.metadata()?.len().saturating_sub(*start))),
            Kind::Device(_) | Kind::Stream(_) | Kind::Pipe(_) => Ok(None),
        }
    }

    /// Whether a flush may say that what was written is to be written again.
    pub(crate) const fn may_lose(&self) -> bool {
        matches!(self.kind, Kind::Device(_))
    }

    /// How many writes of so many bytes keep it busy; of a stream, how many may wait for it.
    pub(crate) fn queue_depth(&self, io_size: usize) -> usize {
        let device = self.device_ref().map(|device| device.queue_depth(io_size));
        device.unwrap_or_else(|| local_depth(io_size)).max(1)
    }

    /// Takes note of how many bytes are copied, as far as that is known: a file has that length from then
    /// on.
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

    /// Only a device makes zeros by itself.
    pub(crate) async fn write_zeroes(&self, offset: u64, len: u64) -> DeviceResult<()> {
        match &self.kind {
            Kind::Device(device) => device.write_zeroes(offset, len).await,
            Kind::File(file) => file.write_zeroes(offset, len).await,
            Kind::FilePart(file, start) => file.write_zeroes(start + offset, len).await,
            Kind::Stream(_) | Kind::Pipe(_) => Err(DeviceErrorKind::Unsupported.into()),
        }
    }

    /// Brings what was written onto the medium, if that is still the one that was written to; at the end, when it is known how many bytes there are in all,
    /// a file becomes as long as that.
    pub(crate) async fn flush(&self, len: Option<u64>) -> DeviceResult<()> {
        self.set_len(len).await?;
        match &self.kind {
            Kind::Device(device) => {
                device.flush().await?;
                // Whatever has taken the place of a device may well answer its flush.
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
