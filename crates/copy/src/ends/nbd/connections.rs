//! Distributes requests over the connections to an export, and waits for reconnects.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_block_device::{DeviceResult, RangeSet};
use iscsi_nbd::{BASE_ALLOCATION, Export, TransmissionFlags};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::NbdError;
use super::connection::{Connection, Failed, MAX_CONNECTIONS};
use super::dirty_bitmap::DirtyBitmap;
use super::link_state::LinkState;
use super::losses::Losses;
use super::reopening::Reopening;
use super::uri::NbdUri;

/// Smallest time limit of a further handshake.
const AT_ONCE: Duration = Duration::from_millis(500);
/// Time limit of a further handshake, as a multiple of the time of the first one.
const AT_ONCE_FACTOR: u32 = 4;

/// Connections to one export. Lost connections are made again, until the server has been unreachable for too
/// long, or comes back with another export.
#[derive(Debug)]
pub(super) struct Connections {
    state: watch::Receiver<LinkState>,
    next: AtomicUsize,
    losses: Arc<Losses>,
    has_flush: bool,
    /// The reconnecting task; it is aborted when this is dropped.
    _reopening: JoinSet<()>,
}

impl Connections {
    /// Opens one connection to an export, and more if the server allows that. The first connection reads the dirty
    /// bitmap, because qemu-nbd accepts one client by default.
    pub(super) async fn open(
        uri: &NbdUri,
        bitmap: Option<&DirtyBitmap>,
    ) -> Result<(Self, Export, Option<RangeSet>), NbdError> {
        let losses = Arc::new(Losses::default());
        let open = |contexts| Box::pin(Connection::open(uri, contexts, Arc::clone(&losses)));
        let contexts: Vec<_> =
            [BASE_ALLOCATION].into_iter().chain(bitmap.map(DirtyBitmap::context)).collect();
        let begun = Instant::now();
        let (first, mut negotiated) = open(&contexts).await?;
        let limit = AT_ONCE.max(begun.elapsed() * AT_ONCE_FACTOR);
        let marked = match bitmap {
            Some(bitmap) => Some(bitmap.marked_over(&first, &negotiated).await?),
            None => None,
        };
        // Further connections do not request the bitmap, so it is removed for the comparison of their exports.
        negotiated.export.contexts.retain(|context| context == BASE_ALLOCATION);
        let export = negotiated.export;
        let mut connections = vec![Arc::new(first)];
        if export.flags.contains(TransmissionFlags::MULTI_CONN) {
            while connections.len() < MAX_CONNECTIONS {
                // The handshake has a time limit: a server that has reached its limit of clients replies to further
                // handshakes only after a client has left.
                let Ok(Ok((further, _))) = timeout(limit, open(&[BASE_ALLOCATION])).await else {
                    break;
                };
                connections.push(Arc::new(further));
            }
        }
        let (publish, state) = watch::channel(LinkState { connections, end: None });
        let reopening = Reopening::new(uri, &export, publish, Arc::clone(&losses));
        let mut tasks = JoinSet::new();
        // Runs in the caller's span, so that its messages belong to the caller's job.
        tasks.spawn(reopening.run().in_current_span());
        let has_flush = export.flags.contains(TransmissionFlags::FLUSH);
        let next = AtomicUsize::new(0);
        Ok((Self { state, next, losses, has_flush, _reopening: tasks }, export, marked))
    }

    /// Returns the number of connections, open or lost.
    pub(super) fn count(&self) -> usize {
        self.state.borrow().connections.len()
    }

    /// Returns whether no connection is open, and reconnecting has not been given up.
    pub(super) fn is_away(&self) -> bool {
        let state = self.state.borrow();
        state.end.is_none() && state.is_away()
    }

    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns the next open connection in turn; waits until there is one.
    ///
    /// # Errors
    /// Returns an error if reconnecting has been given up.
    pub(super) async fn any(&self) -> DeviceResult<Arc<Connection>> {
        let mut state = {
            let now = self.state.borrow();
            if now.end.is_none()
                && let Some(connection) = self.in_turn(&now)
            {
                return Ok(connection);
            }
            drop(now);
            self.state.clone()
        };
        loop {
            {
                let now = state.borrow_and_update();
                if let Some(end) = &now.end {
                    return Err(end.to_error().into());
                }
                if let Some(connection) = self.in_turn(&now) {
                    return Ok(connection);
                }
            }
            if state.changed().await.is_err() {
                return Err(NbdError::Lost.into());
            }
        }
    }

    fn in_turn(&self, state: &LinkState) -> Option<Arc<Connection>> {
        let all = &state.connections;
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % all.len().max(1);
        let mut in_turn = all.iter().cycle().skip(turn).take(all.len());
        in_turn.find(|connection| !connection.is_lost()).cloned()
    }

    /// Flushes over all connections concurrently. One flush is not enough, even if the server offers it
    /// (MULTI_CONN): only over the connection that carried a write is it certain that the same server instance
    /// flushes it. A server that reports a failure once per connection reports it on all of them here, so that
    /// the next flush does not report it again. Returns [`Failed::Lost`] if a connection was lost meanwhile;
    /// then the caller may try again.
    ///
    /// # Errors
    /// Returns an error if reconnecting has been given up.
    pub(super) async fn flush(&self) -> DeviceResult<Result<(), Failed>> {
        let first = self.any().await?;
        let others = self.state.borrow().connections.clone();
        let others = others.into_iter().filter(|other| !Arc::ptr_eq(other, &first));
        let has_flush = self.has_flush;
        let mut flushes = JoinSet::new();
        // A lost connection was already recorded in `losses`, so it need not be flushed.
        for connection in others.filter(|connection| !connection.is_lost()) {
            flushes.spawn(async move { connection.flush(has_flush).await });
        }
        let mut flushed = first.flush(has_flush).await;
        while let Some(further) = flushes.join_next().await {
            let further = further.map_err(io::Error::from)?;
            flushed = match (flushed, further) {
                // The server reports the refusal only once, so it must not be replaced by `Lost`.
                (Err(refused @ Failed::Refused(_)), _) | (_, Err(refused @ Failed::Refused(_))) => {
                    Err(refused)
                }
                (Ok(()), Ok(())) => Ok(()),
                (Err(Failed::Lost), _) | (_, Err(Failed::Lost)) => Err(Failed::Lost),
            };
        }
        Ok(flushed)
    }
}
