//! Runs a proxy before the target whose connections can be stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Approximate number of bytes that a connection buffers while the other side does not read.
const BUFFER: u32 = 64 << 10;

/// Which connections are forwarded, and how many bytes of them.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// Maximum number of connections. Further connections are refused.
    pub(crate) connections: usize,
    /// Index of the connection that stops, counted from 0, and the number of bytes to the target after which
    /// it stops; `None` if no connection stops.
    pub(crate) stop: Option<(usize, usize)>,
}

/// Forwards connections to an address.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    stopped: Arc<AtomicUsize>,
    gate: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr, way: Way) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(BUFFER).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(16).unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicUsize::new(0));
        let (gate, opened) = watch::channel(false);
        let task = tokio::spawn(accept(listener, to, way, Arc::clone(&stopped), opened));
        Self { address, stopped, gate, task }
    }

    /// Returns whether the connection that should stop has stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) > 0
    }

    /// Forwards everything after this call.
    pub(crate) fn open(&self) {
        self.gate.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    to: SocketAddr,
    way: Way,
    stopped: Arc<AtomicUsize>,
    opened: watch::Receiver<bool>,
) {
    let mut flows = JoinSet::new();
    for number in 0..way.connections {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(to).await.unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
        let limit = way.stop.filter(|(which, _)| *which == number).map(|(_, limit)| limit);
        let limit = limit.unwrap_or(usize::MAX);
        flows.spawn(forward(from_near, to_far, limit, Arc::clone(&stopped), opened.clone()));
        flows.spawn(forward(from_far, to_near, usize::MAX, Arc::clone(&stopped), opened.clone()));
    }
    drop(listener);
    flows.join_all().await;
}

/// Forwards one direction up to the limit, and the rest once the gate is open.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    limit: usize,
    stopped: Arc<AtomicUsize>,
    mut opened: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    let mut forwarded = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        forwarded += count;
        if forwarded >= limit && !*opened.borrow() {
            stopped.fetch_add(1, Ordering::Relaxed);
            // If the proxy is dropped, nothing more is forwarded.
            drop(opened.wait_for(|opened| *opened).await);
        }
    }
}
