//! Where bytes come from.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use iscsi_initiator::device::Device;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Where bytes come from.
#[derive(Clone)]
pub struct Source(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    /// Any range, many at a time.
    Device(Arc<dyn Device>),
    /// What comes next, and nothing else.
    Stream(Arc<Mutex<Reader>>, Option<u64>),
}

impl Source {
    /// A device: a file, a block device, a disk.
    pub fn device(device: impl Device + 'static) -> Self {
        Self(Kind::Device(Arc::new(device)))
    }

    /// A stream: a pipe, a socket, something that is unpacked. `len` is how many bytes it is said to have,
    /// if anybody knows; it is for the display only, and the stream ends where it ends.
    pub fn stream(reader: impl AsyncRead + Send + Unpin + 'static, len: Option<u64>) -> Self {
        Self(Kind::Stream(Arc::new(Mutex::new(Box::new(reader))), len))
    }

    /// How many bytes there are, if that is known.
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Device(device) => Some(device.capacity()),
            Kind::Stream(_, len) => *len,
        }
    }

    pub(crate) const fn device_ref(&self) -> Option<&Arc<dyn Device>> {
        match &self.0 {
            Kind::Device(device) => Some(device),
            Kind::Stream(..) => None,
        }
    }
}

/// Reads until the buffer is full, or the stream ends: then it comes back shorter.
pub(crate) async fn fill(reader: &Mutex<Reader>, mut buffer: BytesMut) -> io::Result<BytesMut> {
    let mut reader = reader.lock().await;
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]).await? {
            0 => break,
            count => filled += count,
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Device(device) => device.fmt(f),
            Kind::Stream(_, len) => f.debug_tuple("Stream").field(len).finish(),
        }
    }
}
