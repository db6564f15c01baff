//! Serves a target over TCP: a listener and one task per connection.
//!
//! A task never waits for one direction while the other could make progress, so the buffers of both sides may
//! be full without a deadlock. All connections share one [`Target`]. Data are copied once between a disk and
//! the socket's buffers, while the lock of the target is held. Data of a disk that stores nothing are not
//! copied.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::target::{ConnId, Target};

/// Bytes that are reserved for a read while the inbox is empty.
const INBOX: usize = 512 * 1024;
/// Bytes that are reserved for a read while the inbox contains a part of a PDU. The part is moved to the
/// front of the buffer only if less space is free after it.
const READ_AHEAD: usize = 256 * 1024;
/// Bytes that are taken from the target ahead of sending.
const SEND_AHEAD: usize = 1024 * 1024;
/// The most pieces per system call.
const PIECES: usize = 128;
/// The most bytes per system call: during a call the kernel does not process the acknowledgements of the peer.
/// Without this limit, reads of 1 MiB over loopback reach only 0.6 of the rate.
const BYTES_PER_CALL: usize = 112 << 10;

/// A target that listens until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<Target>,
    wakers: Mutex<BTreeMap<ConnId, Arc<Notify>>>,
    delay: Duration,
}

impl Server {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// The operating system refuses the socket.
    pub async fn start(target: Target) -> io::Result<Self> {
        Self::start_at(("127.0.0.1", 0), target, Duration::ZERO).await
    }

    /// Listens on an address. Everything that the target sends leaves after `delay`.
    ///
    /// # Errors
    ///
    /// The address is in use, or not one of this machine.
    pub async fn start_at(
        address: impl ToSocketAddrs,
        target: Target,
        delay: Duration,
    ) -> io::Result<Self> {
        Self::over(TcpListener::bind(address).await?, target, delay)
    }

    /// Serves the connections of a listener. The task is spawned here, so that its code is compiled in this
    /// crate, and not in each crate that starts a target.
    fn over(listener: TcpListener, mut target: Target, delay: Duration) -> io::Result<Self> {
        let address = listener.local_addr()?;
        target.listen_at(&address.to_string());
        let (stop, stopped) = watch::channel(false);
        let shared =
            Arc::new(Shared { target: Mutex::new(target), wakers: Mutex::default(), delay });
        let listener = tokio::spawn(listen(listener, Arc::clone(&shared), stopped));
        Ok(Self { address, shared, stop, listener })
    }

    /// Returns the address at which the target listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls `look` with the target, which may be inspected and changed. Then sends everything that the
    /// target has to send.
    pub fn with<R>(&self, look: impl FnOnce(&mut Target) -> R) -> R {
        let result = look(&mut self.shared.target());
        self.shared.wake(None);
        result
    }

    /// Closes the listener and all connections, and waits until they are gone.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // The listener task ends by itself. An error means that its runtime cancelled it, which is fine too.
        drop(self.listener.await);
    }
}

impl Shared {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wakers(&self) -> MutexGuard<'_, BTreeMap<ConnId, Arc<Notify>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the connections that have something to do, except `but`.
    fn wake(&self, but: Option<ConnId>) {
        let wakers = self.wakers();
        if wakers.len() == 1 && but.is_some() {
            return;
        }
        let target = self.target();
        for (id, waker) in wakers.iter() {
            if Some(*id) != but && !target.is_idle(*id) {
                waker.notify_one();
            }
        }
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        while connections.try_join_next().is_some() {}
        if let Ok((stream, _)) = accepted {
            connections.spawn(drive(stream, Arc::clone(&shared), stop.clone()));
        }
    }
    connections.join_all().await;
}

async fn drive(stream: TcpStream, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let waker = Arc::new(Notify::new());
    let id = shared.target().accept();
    shared.wakers().insert(id, Arc::clone(&waker));
    // Small PDUs are sent without delay. A socket that refuses this option works too.
    drop(stream.set_nodelay(true));
    let mut line = Line {
        id,
        stream,
        inbox: BytesMut::new(),
        outbox: VecDeque::new(),
        waiting: 0,
        ended: false,
        deadline: None,
    };
    while line.fill(&shared) {
        let moved = tokio::select! {
            moved = line.step(&shared) => moved,
            () = waker.notified() => Ok(()),
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if moved.is_err() {
            break;
        }
    }
    shared.wakers().remove(&id);
    shared.target().disconnected(id);
    shared.wake(None);
}

/// One connection and its buffers.
struct Line {
    id: ConnId,
    stream: TcpStream,
    inbox: BytesMut,
    /// Pieces to send, each with the time from which it may be sent.
    outbox: VecDeque<(Instant, Bytes)>,
    /// Number of bytes in `outbox`.
    waiting: usize,
    /// Whether the initiator has closed its side of the connection.
    ended: bool,
    /// When the next delayed response of the target is due.
    deadline: Option<Instant>,
}

impl Line {
    /// Moves the pieces that the target has to send to the outbox. Returns `false` once the connection is
    /// closed.
    fn fill(&mut self, shared: &Shared) -> bool {
        self.deadline = None;
        if self.waiting >= SEND_AHEAD && shared.delay.is_zero() {
            return true;
        }
        let mut target = shared.target();
        target.advance(Instant::now().into_std());
        let due = Instant::now() + shared.delay;
        for piece in target.transmit_pieces(self.id, SEND_AHEAD) {
            self.waiting += piece.len();
            self.outbox.push_back((due, piece));
        }
        self.deadline = target.deadline(self.id).map(Instant::from_std);
        !self.outbox.is_empty() || !self.ended && !target.is_closed(self.id)
    }

    /// Waits until bytes can be moved in one direction, and moves them.
    async fn step(&mut self, shared: &Shared) -> io::Result<()> {
        let due = self.outbox.front().map(|(due, _)| *due);
        let late = due.is_some_and(|due| due <= Instant::now());
        let interest = match (self.ended, late) {
            (false, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, true) => Some(Interest::WRITABLE),
            (true, false) => None,
        };
        let timer = async {
            match due.filter(|_| !late).into_iter().chain(self.deadline).min() {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let ready = tokio::select! {
            ready = async { match interest {
                Some(interest) => self.stream.ready(interest).await,
                None => std::future::pending().await,
            } } => ready?,
            () = timer => return Ok(()),
        };
        if ready.is_readable() {
            self.read(shared)?;
        }
        if ready.is_writable() {
            self.write()?;
        }
        Ok(())
    }

    fn read(&mut self, shared: &Shared) -> io::Result<()> {
        self.inbox.reserve(if self.inbox.is_empty() { INBOX } else { READ_AHEAD });
        match self.stream.try_read_buf(&mut self.inbox) {
            Ok(0) => self.ended = true,
            Ok(_) => {
                shared.target().receive_from(self.id, &mut self.inbox);
                shared.wake(Some(self.id));
            }
            Err(error) => return ignore_would_block(error),
        }
        Ok(())
    }

    /// Sends the pieces that are due.
    fn write(&mut self) -> io::Result<()> {
        let (now, mut slices) = (Instant::now(), [IoSlice::new(&[]); PIECES]);
        let due = self.outbox.iter().take_while(|(due, _)| *due <= now);
        let (mut count, mut room) = (0, BYTES_PER_CALL);
        for (slice, (_, piece)) in slices.iter_mut().zip(due) {
            let part = piece.get(..room).unwrap_or(piece);
            *slice = IoSlice::new(part);
            room -= part.len();
            count += 1;
            if room == 0 {
                break;
            }
        }
        if count == 0 {
            return Ok(());
        }
        match self.stream.try_write_vectored(&slices[..count]) {
            Ok(sent) => self.sent(sent),
            Err(error) => return ignore_would_block(error),
        }
        Ok(())
    }

    /// Removes the first `count` bytes from the outbox.
    fn sent(&mut self, mut count: usize) {
        self.waiting -= count;
        while let Some((_, piece)) = self.outbox.front_mut() {
            if count < piece.len() {
                return piece.advance(count);
            }
            count -= piece.len();
            self.outbox.pop_front();
        }
    }
}

fn ignore_would_block(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) }
}
