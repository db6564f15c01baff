//! Uses a traffic class in the tree of another process, the keeper. The keeper grants each request of this
//! copy, over its control socket. Without a connection to the keeper, the copy continues at the rate that the
//! keeper has set for that case.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_initiator::shaping::{Charge, Class, Granting, RateLimit, Scheduler};
use iscsi_initiator::{Shaper, TrafficClass};
use iscsi_shaper::TreeError;
use iscsi_tuner::Rate;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::classes::keeper::{Connection, Keeper, Refusal};
use crate::classes::limit;
use crate::classes::lines::{Line, Lines};
use crate::classes::protocol::{Asked, Limits, Reply};
use crate::error::Error;

/// Pause between two attempts to connect to a keeper.
const PAUSE: Duration = Duration::from_secs(1);
/// Most lines that are sent in one write.
const MAX_LINES: usize = 64;

/// A class in a tree that a keeper serves at its control socket. Clones share the connection.
///
/// Without a connection to the keeper, each client continues at the last `alone` rate that it received, and
/// tries to connect again. At these rates all clients together stay within the rates of the tree.
#[derive(Clone, Debug)]
pub(crate) struct SharedClass(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    class: Option<String>,
    state: Mutex<State>,
    /// Notified when a connection begins or ends.
    turned: watch::Sender<()>,
    /// Limits the rate while there is no connection.
    alone: Shaper,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    keeper: Option<Arc<Keeper>>,
    /// Bytes that the copy's requests have moved.
    sent: u64,
    /// Separate limits of sources whose bytes are charged at the destination.
    sources: Vec<Shaper>,
}

/// The task that keeps the connection open. Dropping this ends the task.
#[derive(Debug)]
pub(crate) struct Connected {
    _task: JoinSet<()>,
}

impl SharedClass {
    /// Joins the tree that the keeper at `path` serves.
    ///
    /// # Errors
    /// [`Error::Share`] if no process keeps a tree there, or it lacks the class.
    pub(crate) async fn join(path: &Path, class: Option<&str>) -> Result<(Self, Connected), Error> {
        let failed = |reason: String, is_away| Error::Share { path: path.into(), reason, is_away };
        let connection = Connection::open(path, class).await;
        let connection =
            connection.map_err(|refusal| failed(refusal.to_string(), refusal.is_away()))?;
        let limits = connection.limits;
        let alone = Shaper::new(unsaved(RateLimit::Unlimited))
            .map_err(|error| failed(error.to_string(), false))?;
        let state = State { limits, keeper: None, sent: 0, sources: Vec::new() };
        let shared = Self(Arc::new(Shared {
            path: path.into(),
            class: class.map(str::to_owned),
            state: Mutex::new(state),
            turned: watch::Sender::new(()),
            alone,
        }));
        // The first connection is taken into use here, before any request.
        let conversation = shared.begin(connection);
        let mut task = JoinSet::new();
        task.spawn(shared.clone().keep_connected(conversation));
        Ok((shared, Connected { _task: task }))
    }

    /// Returns the name of the class; `None` for the default class.
    pub(crate) fn class(&self) -> Option<&str> {
        self.0.class.as_deref()
    }

    /// Returns the class that bytes are charged to.
    pub(crate) fn paying(&self) -> TrafficClass {
        TrafficClass::new(Arc::new(self.clone()))
    }

    /// Returns the separate limit for a source whose bytes are charged at the destination. Its rate is the ceil
    /// of the class.
    ///
    /// # Errors
    /// [`TreeError::Class`].
    pub(crate) fn source(&self) -> Result<TrafficClass, TreeError> {
        let shaper = Shaper::new(limit(self.ceil().max(RateLimit::Limited(Rate::MIN))))?;
        let class = shaper.traffic_class(shaper.default_class());
        self.lock().sources.push(shaper);
        Ok(class)
    }

    /// Returns the error for commands that change the tree: they must be sent to the keeper.
    pub(crate) fn refusal(&self) -> String {
        let path = self.0.path.display();
        format!("another process keeps the classes: give this order at {path}")
    }

    /// Returns the state of the class as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let state = self.lock();
        json!({
            "path": self.0.path.to_string_lossy(),
            "class": self.0.class,
            "connected": state.keeper.is_some(),
            "ceil_bit_per_s": state.limits.ceil().bits_per_second(),
            "alone_bit_per_s": state.limits.alone().bits_per_second(),
            "sent_bytes": state.sent,
        })
    }

    /// Serves the connection until it ends, then connects again. This never returns.
    async fn keep_connected(self, mut conversation: Conversation) {
        loop {
            let why = self.converse(conversation).await;
            self.warn(&why);
            conversation = self.begin(self.again(why).await);
            tracing::info!("share {}: the classes are kept again", self.0.path.display());
        }
    }

    /// Takes a connection into use for requests.
    fn begin(&self, connection: Connection) -> Conversation {
        let Connection { lines, writer, limits } = connection;
        let (keeper, to_ask) = Keeper::new();
        self.turn(Some(Arc::clone(&keeper)), limits);
        Conversation { lines, writer, to_ask, keeper }
    }

    /// Sends and receives messages until the connection ends. Returns the reason.
    async fn converse(&self, conversation: Conversation) -> Refusal {
        let Conversation { mut lines, writer, to_ask, keeper } = conversation;
        let why = tokio::select! {
            why = ask(to_ask, writer) => why,
            why = self.listen(&mut lines, &keeper) => why,
        };
        self.turn(None, self.limits());
        keeper.end();
        why
    }

    /// Sets or removes the keeper. Then the waiting requests ask again: they ask the new keeper, or without a
    /// keeper the limit `alone`.
    fn turn(&self, keeper: Option<Arc<Keeper>>, limits: Limits) {
        self.lock().keeper = keeper;
        self.take_limits(limits);
        self.0.turned.send_replace(());
    }

    /// Handles the keeper's messages until the connection ends. Returns the reason.
    async fn listen(&self, lines: &mut Lines, keeper: &Keeper) -> Refusal {
        loop {
            let line = match lines.next().await {
                Ok(Some(Line { text, .. })) => text,
                Ok(None) => return Refusal::Gone,
                Err(error) => return error.into(),
            };
            match Reply::parse(&line) {
                Some(Reply::Limits(limits)) => self.take_limits(limits),
                Some(Reply::Granted(id)) => keeper.grant(id),
                Some(Reply::Error(why)) => return Refusal::Reported(why),
                None => return Refusal::nonsense(&line),
            }
        }
    }

    /// Tries to connect until it succeeds. `told` is the reason that was logged last.
    async fn again(&self, mut told: Refusal) -> Connection {
        loop {
            sleep(PAUSE).await;
            match Connection::open(&self.0.path, self.class()).await {
                Ok(connection) => return connection,
                // Neither reason is logged: one was logged already, and `NotRunning` means that the keeper is
                // still gone.
                Err(why) if why == Refusal::NotRunning || why == told => {}
                Err(why) => {
                    self.warn(&why);
                    told = why;
                }
            }
        }
    }

    fn warn(&self, why: &Refusal) {
        let path = self.0.path.display();
        let alone = self.limits().alone();
        if alone == RateLimit::Zero {
            tracing::warn!(
                "share {path}: {why}; nothing is guaranteed to the copy, so it waits until the classes are kept again"
            );
        } else {
            tracing::warn!(
                "share {path}: {why}; the copy goes on at {alone} until the classes are kept again"
            );
        }
    }

    /// Applies new limits, also to waiting requests.
    fn take_limits(&self, limits: Limits) {
        let mut state = self.lock();
        state.limits = limits;
        let ceil = state.ceil();
        let changes = state.sources.iter().map(|source| (source, limit(ceil)));
        let alone = (&self.0.alone, unsaved(limits.alone()));
        for (shaper, class) in changes.chain([alone]) {
            // `change` refuses a rate of 0, and the shaper then keeps its old limit. That is harmless for
            // `alone`: while the rate without a keeper is 0, the function `alone` admits no request.
            drop(shaper.change(shaper.root(), class));
        }
    }

    fn limits(&self) -> Limits {
        self.lock().limits
    }

    fn keeper(&self) -> Option<Arc<Keeper>> {
        self.lock().keeper.clone()
    }

    /// Returns a charge whose bytes are added to `State::sent` when it ends.
    fn counted(&self, charge: Charge) -> Charge {
        let (shared, charge) = (self.clone(), charge.sent());
        Charge::new(charge.bytes(), move |moved| {
            charge.complete(moved);
            let mut state = shared.lock();
            state.sent = state.sent.saturating_add(moved);
        })
    }

    /// Waits until the limit without a keeper allows the request. At a rate of 0, waits forever: `grant` drops
    /// this future when a connection begins.
    async fn alone(&self, bytes: u64) -> Charge {
        let alone = &self.0.alone;
        if self.limits().alone() == RateLimit::Zero {
            return pending().await;
        }
        match alone.traffic_class(alone.default_class()).pass(bytes).await {
            Some(charge) => charge,
            // The shaper is never closed, so this does not happen.
            None => pending().await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduler for SharedClass {
    /// Waits until a request may be sent. If a connection begins or ends meanwhile, the request asks again.
    fn grant(&self, bytes: u64) -> Granting<'_> {
        Box::pin(async move {
            let mut turned = self.0.turned.subscribe();
            loop {
                turned.mark_unchanged();
                let charge = match self.keeper() {
                    Some(keeper) => keeper.granted(bytes).await,
                    None => tokio::select! {
                        biased;
                        // `changed` cannot return an error: the sender lives as long as `self`.
                        _ = turned.changed() => None,
                        charge = self.alone(bytes) => Some(charge),
                    },
                };
                if let Some(charge) = charge {
                    return self.counted(charge);
                }
            }
        })
    }

    fn ceil(&self) -> RateLimit {
        self.lock().ceil()
    }
}

impl State {
    /// Returns the current ceil of the class. Without a keeper it is the rate `alone`, unless that rate is 0.
    fn ceil(&self) -> RateLimit {
        let alone = self.limits.alone();
        if self.keeper.is_some() || alone == RateLimit::Zero { self.limits.ceil() } else { alone }
    }
}

/// Returns a class that saves no rate for a burst.
fn unsaved(rate: RateLimit) -> Class {
    Class::new(rate).with_burst(Some(0)).with_cburst(Some(0))
}

/// A connection, and the queue of messages to send.
#[derive(Debug)]
struct Conversation {
    lines: Lines,
    writer: OwnedWriteHalf,
    to_ask: mpsc::UnboundedReceiver<Asked>,
    keeper: Arc<Keeper>,
}

/// Sends the queued messages until the connection ends. Returns the reason.
async fn ask(mut to_ask: mpsc::UnboundedReceiver<Asked>, mut writer: OwnedWriteHalf) -> Refusal {
    let mut asked = Vec::new();
    while to_ask.recv_many(&mut asked, MAX_LINES).await > 0 {
        let lines: String = asked.drain(..).map(|asked| asked.to_string()).collect();
        if let Err(error) = writer.write_all(lines.as_bytes()).await {
            return error.into();
        }
    }
    Refusal::Gone
}
