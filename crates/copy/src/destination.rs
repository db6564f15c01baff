//! Where bytes go.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_initiator::device::{Device, DeviceLimits};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::file::FileDevice;

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Where bytes go.
#[derive(Clone)]
pub struct Destination(Kind);

#[derive(Clone)]
enum Kind {
    /// A device that has its capacity.
    Device(Arc<dyn Device>),
    /// A regular file, which ends up as long as what was copied.
    File(FileDevice),
    /// What comes next, and nothing else.
    Stream(Arc<Mutex<Writer>>),
}

impl Destination {
    /// A device: a block device, a disk.
    pub fn device(device: impl Device + 'static) -> Self {
        Self(Kind::Device(Arc::new(device)))
    }

    /// A regular file, which ends up as long as what was copied; or a block device.
    pub fn file(file: FileDevice) -> Self {
        if file.is_block_device() { Self::device(file) } else { Self(Kind::File(file.growing())) }
    }

    /// A stream: a pipe, a socket. It gets all bytes in order, zeros as well.
    pub fn stream(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(Kind::Stream(Arc::new(Mutex::new(Box::new(writer)))))
    }

    /// How many bytes fit; `None` if nothing limits them.
    pub fn capacity(&self) -> Option<u64> {
        match &self.0 {
            Kind::Device(device) => Some(device.capacity()),
            Kind::File(_) | Kind::Stream(_) => None,
        }
    }

    /// What it can do; a stream can do little.
    pub(crate) fn limits(&self) -> DeviceLimits {
        self.device_ref().map_or_else(DeviceLimits::default, Device::limits)
    }

    /// What any range can be written to, and read from.
    pub(crate) fn device_ref(&self) -> Option<&dyn Device> {
        match &self.0 {
            Kind::Device(device) => Some(device.as_ref()),
            Kind::File(file) => Some(file),
            Kind::Stream(_) => None,
        }
    }

    /// The same, for tasks.
    pub(crate) fn shared(&self) -> Option<Arc<dyn Device>> {
        match &self.0 {
            Kind::Device(device) => Some(Arc::clone(device)),
            Kind::File(file) => Some(Arc::new(file.clone())),
            Kind::Stream(_) => None,
        }
    }

    pub(crate) const fn is_sequential(&self) -> bool {
        matches!(self.0, Kind::Stream(_))
    }

    /// Begins a copy of so many bytes, as far as that is known: a file has that length from then on.
    pub(crate) async fn begin(&self, len: Option<u64>) -> io::Result<()> {
        match (&self.0, len) {
            (Kind::File(file), Some(len)) => file.clone().set_len(len).await,
            (Kind::File(_) | Kind::Device(_) | Kind::Stream(_), _) => Ok(()),
        }
    }

    pub(crate) async fn write(&self, offset: u64, data: Bytes) -> io::Result<()> {
        match &self.0 {
            Kind::Device(device) => device.write_at(offset, vec![data]).await,
            Kind::File(file) => file.write_at(offset, vec![data]).await,
            Kind::Stream(writer) => writer.lock().await.write_all(&data).await,
        }
    }

    /// Only a device makes zeros by itself.
    pub(crate) async fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.device_ref() {
            Some(device) => device.write_zeroes(offset, len).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Brings what was written onto the medium.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Device(device) => device.flush().await,
            Kind::File(file) => file.flush().await,
            Kind::Stream(writer) => writer.lock().await.flush().await,
        }
    }

    /// Says that there are so many bytes in all, before the last flush.
    pub(crate) async fn end(&self, len: u64) -> io::Result<()> {
        self.begin(Some(len)).await
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Device(device) => device.fmt(f),
            Kind::File(file) => file.fmt(f),
            Kind::Stream(_) => f.write_str("Stream"),
        }
    }
}
