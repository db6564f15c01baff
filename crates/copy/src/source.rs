//! Where bytes come from.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::{Device, IoFuture};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

use crate::boxed::boxed;
use crate::file::local_depth;
use crate::pipe::Pipe;
use crate::window::Window;

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Where bytes come from.
#[derive(Clone)]
pub struct Source(Kind);

#[derive(Clone)]
enum Kind {
    /// Any range, many at a time.
    Device(Arc<dyn Device>),
    /// What comes next, and nothing else.
    Stream(Arc<Mutex<Stream>>, Option<u64>),
    /// The same, by threads that may block.
    Pipe(Pipe),
}

/// A reader, and what was looked at of it and comes next.
struct Stream {
    ahead: Bytes,
    reader: Reader,
}

impl Stream {
    /// Reads until the buffer is full or the stream ends: then it comes back shorter.
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
    /// A device: a file, a block device, a disk. What it has now is what is copied, also where it grows meanwhile.
    pub fn device(device: impl Device + 'static) -> Self {
        Self(Kind::Device(Arc::new(device))).part(0..u64::MAX)
    }

    /// A stream: a pipe, a socket, something that is unpacked. `len` is how many bytes it is said to have,
    /// if anybody knows; it is for the display only, and the stream ends where it ends.
    pub fn stream(reader: impl AsyncRead + Send + Unpin + 'static, len: Option<u64>) -> Self {
        let stream = Stream { ahead: Bytes::new(), reader: Box::new(reader) };
        Self(Kind::Stream(Arc::new(Mutex::new(stream)), len))
    }

    /// A file as a stream, from where it stands on: a pipe, a terminal, what somebody else has opened.
    /// It is read in whole requests, on the threads of tokio that may block.
    pub fn pipe(file: impl Into<Arc<File>>) -> Self {
        Self(Kind::Pipe(Pipe::new(file.into())))
    }

    /// These bytes of it and no others, as far as it has them; a stream has no places, and stays as it is.
    #[must_use]
    pub fn part(self, range: Range<u64>) -> Self {
        match self.0 {
            Kind::Device(device) => Self(Kind::Device(Arc::new(Window::new(device, range)))),
            Kind::Stream(..) | Kind::Pipe(_) => self,
        }
    }

    /// How many bytes there are, if that is known; of a [pipe](Self::pipe) what is left, if it is a regular
    /// file.
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Device(device) => Some(device.capacity()),
            Kind::Stream(_, len) => *len,
            Kind::Pipe(pipe) => pipe.rest(),
        }
    }

    /// How many reads of so many bytes keep it busy; of a stream, how many it may be ahead.
    pub(crate) fn read_depth(&self, io_size: usize) -> usize {
        let device = self.device_ref().map(|device| device.read_depth(io_size));
        device.unwrap_or_else(|| local_depth(io_size)).max(1)
    }

    pub(crate) const fn device_ref(&self) -> Option<&Arc<dyn Device>> {
        match &self.0 {
            Kind::Device(device) => Some(device),
            Kind::Stream(..) | Kind::Pipe(_) => None,
        }
    }

    /// Reads what comes next of a stream, until the buffer is full or the stream ends: then it comes back
    /// shorter.
    pub(crate) async fn fill(&self, buffer: BytesMut) -> io::Result<BytesMut> {
        match &self.0 {
            Kind::Device(_) => Err(io::ErrorKind::Unsupported.into()),
            Kind::Stream(stream, _) => stream.lock().await.fill(buffer).await,
            Kind::Pipe(pipe) => pipe.fill(buffer).await,
        }
    }

    /// The first `len` bytes, or as many as there are, to find out what they are: a stream gives them again to the
    /// copy. It is to be called before the copy begins, and waits until a stream has given so many, or ends.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn peek(&self, len: usize) -> IoFuture<'_, Bytes> {
        boxed(async move {
            match &self.0 {
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
                Kind::Pipe(pipe) => pipe.peek(len).await,
            }
        })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Device(device) => device.fmt(f),
            Kind::Stream(_, len) => f.debug_tuple("Stream").field(len).finish(),
            Kind::Pipe(pipe) => pipe.fmt(f),
        }
    }
}
