//! Connections between clients and a server: pipes in memory, of which either side may be lost.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use block_serve::{Entrance, Visitor};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::{Mutex as Turn, mpsc};

use crate::oracle::Unanswered;
use crate::world::Shared;

/// Accepts the connections of clients to a server.
pub(super) struct Door(Turn<mpsc::UnboundedReceiver<Visitor>>);

impl Door {
    /// Returns a sender that hands client connections to a new door, and the door.
    pub(super) fn new() -> (mpsc::UnboundedSender<Visitor>, Self) {
        let (sender, visitors) = mpsc::unbounded_channel();
        (sender, Self(Turn::new(visitors)))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

impl Entrance for Door {
    fn accept(&self) -> Pin<Box<dyn Future<Output = io::Result<Visitor>> + Send + '_>> {
        Box::pin(async move {
            match self.0.lock().await.recv().await {
                Some(visitor) => Ok(visitor),
                None => std::future::pending().await,
            }
        })
    }
}

/// State of a connection that outlives the client's side.
#[derive(Clone)]
pub(super) struct Line {
    shared: Arc<Shared>,
    /// Whether all data that has not arrived is lost.
    is_reset: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whether the server has finished with the connection.
    is_gone: bool,
    unanswered: Vec<Unanswered>,
}

impl Line {
    /// Makes a connection with `room` bytes of buffer in each direction. Returns the connection, the client's
    /// side and the server's side.
    pub(super) fn new(shared: &Arc<Shared>, room: usize) -> (Self, DuplexStream, ServerEnd) {
        let (client, server) = tokio::io::duplex(room);
        let (is_reset, state) = (Arc::default(), Arc::default());
        let line = Self { shared: Arc::clone(shared), is_reset, state };
        (line.clone(), client, ServerEnd { stream: server, line })
    }

    /// Makes all further data get lost.
    pub(super) fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }

    /// Notes the writes that were sent over the connection and have no response.
    pub(super) fn lost(&self, unanswered: Vec<Unanswered>) {
        let is_gone = {
            let mut state = self.state();
            state.unanswered.extend(unanswered);
            state.is_gone
        };
        if is_gone {
            self.gone();
        }
    }

    fn gone(&self) {
        let unanswered = {
            let mut state = self.state();
            state.is_gone = true;
            std::mem::take(&mut state.unanswered)
        };
        let mut world = self.shared.lock();
        unanswered.iter().for_each(|unanswered| world.oracle.connection_gone(unanswered));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's side of a connection.
pub(super) struct ServerEnd {
    stream: DuplexStream,
    line: Line,
}

impl ServerEnd {
    fn check(&self) -> io::Result<()> {
        let is_reset = self.line.is_reset.load(Ordering::Relaxed);
        if is_reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for ServerEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.line.gone();
    }
}
