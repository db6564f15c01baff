//! The source of a copy.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceResult};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

use super::file::local_depth;
use super::identity::Identity;
use super::mark::Mark;
use super::pipe::Pipe;
use super::window::Window;
use crate::boxed::boxed;

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// The source of a copy: a device or a stream.
#[derive(Clone)]
pub struct Source {
    kind: Kind,
    mark: Mark,
}

#[derive(Clone)]
enum Kind {
    /// A device, with concurrent reads of any range.
    Device(Arc<dyn Device>),
    /// A stream, read from its current position on, and its length if that is known.
    Stream(Arc<Mutex<Stream>>, Option<u64>),
    /// A file as a stream, read on tokio's blocking threads.
    Pipe(Pipe),
}

/// A reader, and the bytes that were peeked at, which are read next.
struct Stream {
    ahead: Bytes,
    reader: Reader,
}

impl Stream {
    /// Fills the buffer. At the end of the stream the returned buffer is shorter.
    async fn fill(&mut self, mut buffer: BytesMut) -> io::Result<BytesMut> {
        let mut filled = self.ahead.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&self.ahead.split_to(filled));
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]).await? {
                0 => break,
                count => filled += count,
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }
}

impl Source {
    /// Reads from a device, such as a file, a block device or a disk. The copy has the length that the device
    /// has at the beginning, even if the device grows meanwhile.
    pub fn device(device: impl Device + 'static) -> Self {
        let device: Arc<dyn Device> = Arc::new(device);
        let mark = Mark::of(Arc::clone(&device));
        let window = Window::new(device, 0..u64::MAX);
        Self { kind: Kind::Device(Arc::new(window)), mark }
    }

    /// Reads from a stream, such as a pipe, a socket or a decompressor. `len` is the length of the stream in
    /// bytes, if it is known. It is used for progress only: the copy ends where the stream ends.
    pub fn stream(reader: impl AsyncRead + Send + Unpin + 'static, len: Option<u64>) -> Self {
        let stream = Stream { ahead: Bytes::new(), reader: Box::new(reader) };
        Self { kind: Kind::Stream(Arc::new(Mutex::new(stream)), len), mark: Mark::NONE }
    }

    /// Reads from a file as a stream, from its position on: a pipe, a terminal, a file that another program
    /// has opened. It is read in whole requests on tokio's blocking threads.
    pub fn pipe(file: impl Into<Arc<File>>) -> Self {
        Self { kind: Kind::Pipe(Pipe::new(file.into())), mark: Mark::NONE }
    }

    /// Limits the source to these bytes, or to the part of them that the device has. On a stream, which has no
    /// positions, it has no effect.
    #[must_use]
    pub fn part(self, range: Range<u64>) -> Self {
        match self.kind {
            Kind::Device(device) => {
                let mark = self.mark.part(&range);
                Self { kind: Kind::Device(Arc::new(Window::new(device, range))), mark }
            }
            Kind::Stream(..) | Kind::Pipe(_) => self,
        }
    }

    /// Sets the identity by which [`CopyJob::resume_from`](crate::CopyJob::resume_from) recognizes the device
    /// in a later run.
    ///
    /// A device with a [name](Device::name), such as a unit or a [`FileDevice`](crate::FileDevice), does not
    /// need it. Any other device does, and so does a file that other programs write to meanwhile
    /// ([`Identity::of_source_in_use`]).
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.mark = self.mark.given(identity);
        self
    }

    /// Returns the identity by which a later run recognizes the source.
    pub(crate) fn identity(&self) -> DeviceResult<Identity> {
        match &self.kind {
            Kind::Device(_) => self.mark.source(),
            Kind::Stream(..) | Kind::Pipe(_) => {
                let why = "a stream cannot be read again, so a copy of it cannot be resumed";
                Err(DeviceError::new(DeviceErrorKind::Unsupported, why))
            }
        }
    }

    /// Returns the number of bytes of the source; `None` if it is unknown. For a regular file that is read as
    /// a stream ([`pipe`](Self::pipe)), this is the number of bytes from its position to its end.
    pub fn length(&self) -> Option<u64> {
        match &self.kind {
            Kind::Device(device) => Some(device.capacity()),
            Kind::Stream(_, len) => *len,
            Kind::Pipe(pipe) => pipe.rest(),
        }
    }

    /// Returns how many concurrent reads of `io_size` bytes keep the source busy; for a stream, how many reads
    /// ahead of the writes are allowed.
    pub(crate) fn read_depth(&self, io_size: usize) -> usize {
        let device = self.device_ref().map(|device| device.read_depth(io_size));
        device.unwrap_or_else(|| local_depth(io_size)).max(1)
    }

    pub(crate) const fn device_ref(&self) -> Option<&Arc<dyn Device>> {
        match &self.kind {
            Kind::Device(device) => Some(device),
            Kind::Stream(..) | Kind::Pipe(_) => None,
        }
    }

    /// Reads the next bytes of a stream until the buffer is full. At the end of the stream the returned buffer
    /// is shorter.
    pub(crate) async fn fill(&self, buffer: BytesMut) -> DeviceResult<BytesMut> {
        match &self.kind {
            Kind::Device(_) => Err(DeviceErrorKind::Unsupported.into()),
            Kind::Stream(stream, _) => Ok(stream.lock().await.fill(buffer).await?),
            Kind::Pipe(pipe) => Ok(pipe.fill(buffer).await?),
        }
    }

    /// Reads the first `len` bytes, or fewer if the source is shorter, for example to detect their format. The
    /// copy of a stream still includes them. Call it before the copy begins. On a stream it waits until `len`
    /// bytes have arrived, or the stream ends.
    ///
    /// Returns an error if the bytes cannot be read.
    pub fn peek(&self, len: usize) -> DeviceFuture<'_, Bytes> {
        boxed(async move {
            match &self.kind {
                Kind::Device(device) => {
                    let len = usize::try_from(device.capacity()).unwrap_or(len).min(len);
                    Ok(device.read_into(0, BytesMut::zeroed(len)).await?.freeze())
                }
                Kind::Stream(stream, _) => {
                    let mut stream = stream.lock().await;
                    let peeked = stream.fill(BytesMut::zeroed(len)).await?.freeze();
                    stream.ahead = peeked.clone();
                    Ok(peeked)
                }
                Kind::Pipe(pipe) => Ok(pipe.peek(len).await?),
            }
        })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Device(device) => device.fmt(f),
            Kind::Stream(_, len) => f.debug_tuple("Stream").field(len).finish(),
            Kind::Pipe(pipe) => pipe.fmt(f),
        }
    }
}
