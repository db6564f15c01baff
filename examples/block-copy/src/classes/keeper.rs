//! Connects to the keeper, and sends it requests. The keeper is the process that has the tree of traffic
//! classes, which copies in other processes share. It grants each request of these copies, over its control
//! socket.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_initiator::shaping::Charge;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};

use crate::classes::lines::{Line, Lines};
use crate::classes::protocol::{Asked, Limits, Reply, SHARE};

/// A keeper, with the requests that were sent to it.
#[derive(Debug)]
pub(crate) struct Keeper {
    asked: mpsc::UnboundedSender<Asked>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    last: u64,
    /// The requests that the keeper has not granted yet, by their ids.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    /// Whether the connection to the keeper has ended. The keeper then grants no more requests.
    has_ended: bool,
}

impl Keeper {
    /// Creates a keeper, and the queue of messages to send to it.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Asked>) {
        let (asked, to_ask) = mpsc::unbounded_channel();
        (Arc::new(Self { asked, requests: Mutex::default() }), to_ask)
    }

    /// Waits until the keeper grants the request. Returns `None` if the connection to the keeper ends first.
    pub(crate) async fn granted(self: Arc<Self>, bytes: u64) -> Option<Charge> {
        let (granted, grant) = oneshot::channel();
        let id = self.ask(bytes, granted)?;
        // If this future is dropped, the charge reports to the keeper that nothing was moved. That is right
        // whether or not the request was granted.
        let charge = Charge::new(bytes, move |moved| self.end_request(id, moved));
        grant.await.ok().map(|()| charge)
    }

    fn ask(&self, bytes: u64, granted: oneshot::Sender<()>) -> Option<u64> {
        let mut requests = self.lock();
        if requests.has_ended {
            return None;
        }
        requests.last += 1;
        let id = requests.last;
        requests.waiting.insert(id, granted);
        // Sent under the lock, so that the keeper receives the ids in rising order.
        self.send(Asked::Take { id, bytes });
        Some(id)
    }

    /// Completes the wait of a request, unless it was dropped.
    pub(crate) fn grant(&self, id: u64) {
        if let Some(granted) = self.lock().waiting.remove(&id) {
            _ = granted.send(());
        }
    }

    fn end_request(&self, id: u64, moved: u64) {
        self.lock().waiting.remove(&id);
        self.send(Asked::Moved { id, bytes: moved });
    }

    /// Queues a message. After the end of the connection the message is dropped.
    fn send(&self, asked: Asked) {
        _ = self.asked.send(asked);
    }

    /// Ends the waits of all requests after the end of the connection. The callers then ask again on the next
    /// connection.
    pub(crate) fn end(&self) {
        let mut requests = self.lock();
        requests.has_ended = true;
        requests.waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to a keeper that has admitted this process to a class.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) lines: Lines,
    pub(crate) writer: OwnedWriteHalf,
    pub(crate) limits: Limits,
}

/// Reasons why a class cannot be shared.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    /// No process listens at the socket.
    #[error("no process keeps classes there; start block-copy with --control at this path first")]
    NotRunning,
    /// The connection to the other process has ended.
    #[error("the process that keeps the classes is gone")]
    Gone,
    /// The other process does not speak the protocol of shared classes.
    #[error("what is there does not keep classes: it says {0:?}")]
    Nonsense(String),
    /// The error that the other process reports, or an error of the system.
    #[error("{0}")]
    Reported(String),
}

impl Refusal {
    /// Returns whether no process keeps classes there, at least at present.
    pub(crate) const fn is_away(&self) -> bool {
        matches!(self, Self::NotRunning | Self::Gone)
    }

    pub(crate) fn nonsense(line: &str) -> Self {
        Self::Nonsense(line.trim_end().to_owned())
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let kind = error.kind();
        if matches!(kind, ErrorKind::NotFound | ErrorKind::ConnectionRefused) {
            Self::NotRunning
        } else if matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
            Self::Gone
        } else {
            Self::Reported(error.to_string())
        }
    }
}

impl Connection {
    /// Connects to a keeper, and asks to share the class `class`, or the default class.
    ///
    /// # Errors
    /// The reason why the class is not available.
    pub(crate) async fn open(path: &Path, class: Option<&str>) -> Result<Self, Refusal> {
        let (reader, mut writer) = UnixStream::connect(path).await?.into_split();
        let order = format!("{SHARE} {}\n", class.unwrap_or_default());
        writer.write_all(order.as_bytes()).await?;
        let mut lines = Lines::new(reader);
        let Line { text, .. } = lines.next().await?.ok_or(Refusal::Gone)?;
        match Reply::parse(&text) {
            Some(Reply::Limits(limits)) => Ok(Self { lines, writer, limits }),
            Some(Reply::Error(why)) => Err(Refusal::Reported(why)),
            Some(Reply::Granted(_)) | None => Err(Refusal::nonsense(&text)),
        }
    }
}
