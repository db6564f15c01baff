//! The target on TCP: a listener and one task per connection.
//!
//! A task never waits for one direction while the other could move, so both ends may fill their
//! buffers without a deadlock. All connections share one [`Target`]; nothing is copied while its lock
//! is held but the payload itself.

use std::collections::{BTreeMap, VecDeque};
use std::io;
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

/// Room that is kept for the next read.
const READ_AHEAD: usize = 512 * 1024;

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

    /// Listens on an address; everything the target says leaves `delay` later.
    ///
    /// # Errors
    ///
    /// The address is in use, or not one of this machine.
    pub async fn start_at(
        address: impl ToSocketAddrs,
        mut target: Target,
        delay: Duration,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        target.listen_at(&address.to_string());
        let (stop, stopped) = watch::channel(false);
        let shared =
            Arc::new(Shared { target: Mutex::new(target), wakers: Mutex::default(), delay });
        let listener = tokio::spawn(listen(listener, Arc::clone(&shared), stopped));
        Ok(Self { address, shared, stop, listener })
    }

    /// Where the target listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at the target, or changes it; what it then has to say is sent.
    pub fn with<R>(&self, look: impl FnOnce(&mut Target) -> R) -> R {
        let result = look(&mut self.shared.target());
        self.shared.wake(None);
        result
    }

    /// Closes the listener and all connections, and waits until they are gone.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // The listener ends by itself; that it was cancelled with its runtime is as good.
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

    /// Wakes the connections that have something to do, but for one.
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
    // Small PDUs wait for nobody; a socket that refuses this works all the same.
    drop(stream.set_nodelay(true));
    let mut line = Line {
        id,
        stream,
        inbox: BytesMut::new(),
        outbox: VecDeque::new(),
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

/// One connection and what is on its way.
struct Line {
    id: ConnId,
    stream: TcpStream,
    inbox: BytesMut,
    outbox: VecDeque<(Instant, Bytes)>,
    /// Whether the initiator will send no more.
    ended: bool,
    /// When the target has more to say.
    deadline: Option<Instant>,
}

impl Line {
    /// Takes what the target has to say; `false` once the connection is over.
    fn fill(&mut self, shared: &Shared) -> bool {
        self.deadline = None;
        if !self.outbox.is_empty() && shared.delay.is_zero() {
            return true;
        }
        let mut target = shared.target();
        target.advance(Instant::now().into_std());
        let bytes = target.transmit(self.id);
        if !bytes.is_empty() {
            self.outbox.push_back((Instant::now() + shared.delay, bytes));
        }
        self.deadline = target.deadline(self.id).map(Instant::from_std);
        !self.outbox.is_empty() || !self.ended && !target.is_closed(self.id)
    }

    /// Waits until a direction can move, and moves it.
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
        self.inbox.reserve(READ_AHEAD);
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

    fn write(&mut self) -> io::Result<()> {
        let Some((_, bytes)) = self.outbox.front_mut() else { return Ok(()) };
        match self.stream.try_write(bytes) {
            Ok(count) => bytes.advance(count),
            Err(error) => return ignore_would_block(error),
        }
        if bytes.is_empty() {
            self.outbox.pop_front();
        }
        Ok(())
    }
}

fn ignore_would_block(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) }
}
