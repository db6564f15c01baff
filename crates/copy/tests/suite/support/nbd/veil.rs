//! A stream in the place of TLS: bytes are changed on the way, and nothing is sent before a flush.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const MASK: u8 = 0x5a;

#[derive(Debug)]
pub(crate) struct Veil<S> {
    below: S,
    unsent: Vec<u8>,
}

impl<S> Veil<S> {
    pub(crate) const fn over(below: S) -> Self {
        Self { below, unsent: Vec::new() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Veil<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.below).poll_read(context, buffer))?;
        buffer.filled_mut()[before..].iter_mut().for_each(|byte| *byte ^= MASK);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Veil<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.unsent.extend(bytes.iter().map(|byte| byte ^ MASK));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { below, unsent } = &mut *self;
        while !unsent.is_empty() {
            let count = ready!(Pin::new(&mut *below).poll_write(context, unsent))?;
            unsent.drain(..count);
        }
        Pin::new(below).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.below).poll_shutdown(context)
    }
}
