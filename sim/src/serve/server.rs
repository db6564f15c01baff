//! A process of block-serve that serves one disk until it is stopped or killed.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use block_serve::{ClientTls, Error, Layers, Server, Stop, StopButton, Visitor, describe};
use iscsi_initiator::Disk;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::pipe::{Door, ServerEnd};
use crate::rng::Rng;
use crate::world::{Shared, World};

/// Memory for the requests of all clients, bytes.
const MEMORY: u32 = 64 << 20;
/// Number of connections that have handles of their own. All further connections share one pair of handles.
const MAX_CONNECTIONS: u32 = 30;
/// Handle of the last flush of a server.
const LAST_HANDLE: u32 = 63;

/// A server as its clients see it.
pub(super) struct Standing {
    shared: Arc<Shared>,
    /// The disk that the server serves.
    pub(super) disk: usize,
    server: Arc<Server>,
    visitors: mpsc::UnboundedSender<Visitor>,
    connections: AtomicU32,
    /// Number of changes that had failed after their acknowledgement, when last read.
    failed: AtomicU64,
    has_ended: AtomicBool,
    /// Whether the server was killed, or has not shut down cleanly.
    was_killed: AtomicBool,
}

/// The current server, if there is one. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Current(Arc<Place>);

#[derive(Default)]
struct Place {
    standing: Mutex<Option<Arc<Standing>>>,
    bell: Notify,
}

impl Current {
    /// Sets the current server.
    pub(super) fn set(&self, standing: Option<Arc<Standing>>) {
        *self.0.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        self.0.bell.notify_waiters();
    }

    pub(super) fn get(&self) -> Option<Arc<Standing>> {
        self.0.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the current server serves another disk than `disk`, or until there is no server.
    pub(super) async fn is_not(&self, disk: Option<usize>) {
        loop {
            let mut rings = pin!(self.0.bell.notified());
            rings.as_mut().enable();
            if self.get().map(|standing| standing.disk) != disk {
                return;
            }
            rings.await;
        }
    }
}

/// A server as its host sees it.
pub(super) struct Running {
    pub(super) standing: Arc<Standing>,
    button: StopButton,
    is_stopping: bool,
    serving: JoinHandle<Result<(), Error>>,
}

/// How a server has ended after it was asked to stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// All acknowledged writes are on the unit, and no request is in flight.
    Well,
    /// The server has ended, and has reported that writes may be lost.
    Badly,
    /// The server has not ended within the time limit.
    Late,
}

impl Standing {
    pub(super) fn is_alive(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }

    pub(super) fn was_killed(&self) -> bool {
        self.was_killed.load(Ordering::Relaxed)
    }

    /// Hands a connection of a client to the server.
    pub(super) fn visit(&self, end: ServerEnd) {
        // A server that is stopping accepts no client and drops the connection.
        drop(self.visitors.send(Visitor::new(end, "a client")));
    }

    /// Returns the two handles of a new connection: the first until a loss is reported, the second after that.
    pub(super) fn handles(&self) -> [u32; 2] {
        let number = self.connections.fetch_add(1, Ordering::Relaxed).min(MAX_CONNECTIONS);
        [2 * number, 2 * number + 1]
    }

    /// Returns whether a new connection has handles of its own.
    pub(super) fn has_handles(&self) -> bool {
        self.connections.load(Ordering::Relaxed) < MAX_CONNECTIONS
    }

    /// Informs the oracle of writes that have failed after their acknowledgement.
    pub(super) fn observe(&self, world: &mut World) {
        let failed = self.server.layers().failed_changes();
        if self.failed.swap(failed, Ordering::Relaxed) != failed && self.is_alive() {
            world.trace.record("answered writes have failed", &[failed]);
            world.oracle.may_be_lost(self.disk);
            world.counts.served("an answered write fails");
        }
    }
}

impl Running {
    /// Starts a server of a disk.
    pub(super) fn start(shared: &Arc<Shared>, disk: Disk, number: usize, rng: &mut Rng) -> Self {
        let windows = [0, 4 << 10, 16 << 10, 64 << 10, 1 << 20];
        let caches = [0, 16 << 10, 64 << 10, 1 << 20];
        let window = rng.pick(&windows).copied().unwrap_or(0);
        let cache = rng.pick(&caches).copied().unwrap_or(0);
        shared.lock().trace.record("a server starts", &[number as u64, window.into(), cache]);
        let export = describe(&disk, "", false);
        let server = Server::new(
            Layers::new(disk, window, cache),
            export,
            ClientTls::default(),
            MEMORY,
            usize::MAX,
        );
        let (visitors, door) = Door::new();
        let (button, stop) = Stop::new();
        let serving = {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.run_to_end(&[door], 1, &stop, false).await })
        };
        let standing = Arc::new(Standing {
            shared: Arc::clone(shared),
            disk: number,
            server,
            visitors,
            connections: AtomicU32::new(0),
            failed: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            was_killed: AtomicBool::new(false),
        });
        Self { standing, button, is_stopping: false, serving }
    }

    /// Returns whether the server was asked to stop.
    pub(super) const fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Stops the server, and waits for its end.
    pub(super) async fn stop(&mut self, limit: Duration) -> Ended {
        let (standing, shared) = (&self.standing, &self.standing.shared);
        shared.lock().trace.record("a server is told to stop", &[standing.disk as u64]);
        self.button.press();
        self.is_stopping = true;
        let ended = timeout(limit, &mut self.serving).await;
        let mut world = shared.lock();
        standing.observe(&mut world);
        let ended = match ended {
            Ok(Ok(Ok(()))) => Ended::Well,
            Ok(Ok(Err(error))) => {
                world.trace.record(&format!("the server has ended: {error}"), &[]);
                Ended::Badly
            }
            Ok(Err(_)) => Ended::Badly,
            Err(_) => Ended::Late,
        };
        if ended == Ended::Well {
            world.trace.record("the server has ended", &[standing.disk as u64]);
            // The server flushes after it has sent the last response.
            let answered = world.oracle.now();
            world.oracle.made_handle(standing.disk, LAST_HANDLE);
            world.oracle.flushed(standing.disk, LAST_HANDLE, answered);
            world.oracle.server_gone(standing.disk);
            standing.has_ended.store(true, Ordering::Relaxed);
        }
        drop(world);
        ended
    }

    /// Kills the server. Once its process has ended, its further actions cannot be observed.
    pub(super) fn kill(&self) {
        self.serving.abort();
        let mut world = self.standing.shared.lock();
        world.trace.record("a server is killed", &[self.standing.disk as u64]);
        self.standing.was_killed.store(true, Ordering::Relaxed);
        self.standing.has_ended.store(true, Ordering::Relaxed);
        world.oracle.may_be_lost(self.standing.disk);
    }
}
