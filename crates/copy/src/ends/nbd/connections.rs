//! The connections to an export, as those see them who make requests.

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
use super::losses::Losses;
use super::reopening::Reopening;
use super::standing::Standing;
use super::uri::NbdUri;

/// Time limit of a further handshake: this, or this multiple of the first handshake's time.
const AT_ONCE: Duration = Duration::from_millis(500);
const AT_ONCE_FACTOR: u32 = 4;

/// Connections to one export. Each that is lost is opened again, until the server has been away for too long, or is
/// another one.
#[derive(Debug)]
pub(super) struct Connections {
    standing: watch::Receiver<Standing>,
    next: AtomicUsize,
    losses: Arc<Losses>,
    has_flush: bool,
    /// What opens them again, which ends with this.
    _reopening: JoinSet<()>,
}

impl Connections {
    /// Opens one connection to an export, and more if the server allows that. The dirty bitmap is read over the first one, since
    /// qemu-nbd takes one client by default.
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
        // Further connections do not ask for the bitmap; without it their exports compare equal.
        negotiated.export.contexts.retain(|context| context == BASE_ALLOCATION);
        let export = negotiated.export;
        let mut connections = vec![Arc::new(first)];
        if export.flags.contains(TransmissionFlags::MULTI_CONN) {
            while connections.len() < MAX_CONNECTIONS {
                // A server with too many clients answers none of the further handshakes until a client leaves.
                let Ok(Ok((further, _))) = timeout(limit, open(&[BASE_ALLOCATION])).await else {
                    break;
                };
                connections.push(Arc::new(further));
            }
        }
        let (publish, standing) = watch::channel(Standing { connections, end: None });
        let reopening = Reopening::new(uri, &export, publish, Arc::clone(&losses));
        let mut tasks = JoinSet::new();
        // Within the span of whoever opens it: what it has to say is of that job.
        tasks.spawn(reopening.run().in_current_span());
        let has_flush = export.flags.contains(TransmissionFlags::FLUSH);
        let next = AtomicUsize::new(0);
        Ok((Self { standing, next, losses, has_flush, _reopening: tasks }, export, marked))
    }

    /// How many there are, open or not.
    pub(super) fn count(&self) -> usize {
        self.standing.borrow().connections.len()
    }

    /// Whether none is open, and they are still being opened again.
    pub(super) fn is_away(&self) -> bool {
        let standing = self.standing.borrow();
        standing.end.is_none() && standing.is_away()
    }

    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The connection whose turn it is, of those that are open. Waits until there is one.
    ///
    /// # Errors
    /// When there will be none.
    pub(super) async fn any(&self) -> DeviceResult<Arc<Connection>> {
        let mut standing = {
            let now = self.standing.borrow();
            if now.end.is_none()
                && let Some(connection) = self.in_turn(&now)
            {
                return Ok(connection);
            }
            drop(now);
            self.standing.clone()
        };
        loop {
            {
                let now = standing.borrow_and_update();
                if let Some(end) = &now.end {
                    return Err(end.to_error().into());
                }
                if let Some(connection) = self.in_turn(&now) {
                    return Ok(connection);
                }
            }
            if standing.changed().await.is_err() {
                return Err(NbdError::Lost.into());
            }
        }
    }

    fn in_turn(&self, standing: &Standing) -> Option<Arc<Connection>> {
        let all = &standing.connections;
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % all.len().max(1);
        let mut in_turn = all.iter().cycle().skip(turn).take(all.len());
        in_turn.find(|connection| !connection.is_lost()).cloned()
    }

    /// Flushes over each of them at once. Over one is not enough, also where the server says so: only as long as a
    /// connection lives the server is certainly the one that has answered a write over it. And a server that tells each
    /// connection of a failure by itself tells all of them now, so that the next flush does not tell it again.
    /// `Lost` if one did not live as long; then it may be tried again.
    ///
    /// # Errors
    /// That there will be no connection.
    pub(super) async fn flush(&self) -> DeviceResult<Result<(), Failed>> {
        let first = self.any().await?;
        let others = self.standing.borrow().connections.clone();
        let others = others.into_iter().filter(|other| !Arc::ptr_eq(other, &first));
        let has_flush = self.has_flush;
        let mut flushes = JoinSet::new();
        // What a lost one has taken with it is a loss already.
        for connection in others.filter(|connection| !connection.is_lost()) {
            flushes.spawn(async move { connection.flush(has_flush).await });
        }
        let mut flushed = first.flush(has_flush).await;
        while let Some(further) = flushes.join_next().await {
            let further = further.map_err(io::Error::from)?;
            flushed = match (flushed, further) {
                // It says it once.
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
