//! A class in a tree that another process keeps.

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

use crate::classes::limit;
use crate::error::Error;
use crate::keeper::{Connection, Keeper, Refusal};
use crate::lines::{Line, Lines};
use crate::sharing::{Asked, Limits, Told};

/// How long after a process that keeps the tree was looked for it is looked for again.
const PAUSE: Duration = Duration::from_secs(1);
/// Lines that are sent in one write, at most.
const MAX_LINES: usize = 64;

/// A class in a tree that another process keeps at a control socket. Clones are the same.
///
/// While that process is gone, each of those that share the tree goes on at the rate that it was last told,
/// so that together they stay within the tree, and looks for another keeper.
#[derive(Clone, Debug)]
pub(crate) struct SharedClass(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    class: Option<String>,
    state: Mutex<State>,
    /// A keeper is there, or is not any more.
    turned: watch::Sender<()>,
    /// What rules while there is none.
    alone: Shaper,
}

#[derive(Debug)]
struct State {
    limits: Limits,
    keeper: Option<Arc<Keeper>>,
    /// Bytes that requests have moved.
    sent: u64,
    /// The limits of sources whose bytes are paid for at a destination.
    sources: Vec<Shaper>,
}

/// What looks after the connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    _task: JoinSet<()>,
}

impl SharedClass {
    /// Shares the tree that is kept at a path.
    ///
    /// # Errors
    /// [`Error::Share`] if nobody keeps one there, or it has no such class.
    pub(crate) async fn join(path: &Path, class: Option<&str>) -> Result<(Self, Connected), Error> {
        let failed = |reason: String| Error::Share { path: path.into(), reason };
        let connection = Connection::open(path, class).await;
        let connection = connection.map_err(|refusal| failed(refusal.to_string()))?;
        let limits = connection.limits;
        let alone = Shaper::new(unsaved(RateLimit::Unlimited))
            .map_err(|error| failed(error.to_string()))?;
        let state = State { limits, keeper: None, sent: 0, sources: Vec::new() };
        let shared = Self(Arc::new(Shared {
            path: path.into(),
            class: class.map(str::to_owned),
            state: Mutex::new(state),
            turned: watch::Sender::new(()),
            alone,
        }));
        // Nothing passes before it is asked.
        let conversation = shared.begin(connection);
        let mut task = JoinSet::new();
        task.spawn(shared.clone().keep_connected(conversation));
        Ok((shared, Connected { _task: task }))
    }

    /// The name of the class, if it has one.
    pub(crate) fn class(&self) -> Option<&str> {
        self.0.class.as_deref()
    }

    /// The class of the end that pays.
    pub(crate) fn paying(&self) -> TrafficClass {
        TrafficClass::new(Arc::new(self.clone()))
    }

    /// The class of a source whose bytes are paid for at the destination: as fast as the ceil is.
    ///
    /// # Errors
    /// [`TreeError::Class`].
    pub(crate) fn source(&self) -> Result<TrafficClass, TreeError> {
        let shaper = Shaper::new(limit(self.ceil().max(RateLimit::Limited(Rate::MIN))))?;
        let class = shaper.traffic_class(shaper.default_class());
        self.lock().sources.push(shaper);
        Ok(class)
    }

    /// Why it takes no orders for the tree.
    pub(crate) fn refusal(&self) -> String {
        let path = self.0.path.display();
        format!("another process keeps the classes: give this order at {path}")
    }

    /// How it stands, for programs.
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

    /// Asks a keeper, as long as there is one, and looks for the next.
    async fn keep_connected(self, mut conversation: Conversation) {
        loop {
            let why = self.converse(conversation).await;
            self.warn(&why);
            conversation = self.begin(self.again(why).await);
            tracing::info!("share {}: the classes are kept again", self.0.path.display());
        }
    }

    /// From now on requests go by a connection.
    fn begin(&self, connection: Connection) -> Conversation {
        let Connection { lines, writer, limits } = connection;
        let (keeper, to_ask) = Keeper::new();
        self.turn(Some(Arc::clone(&keeper)), limits);
        Conversation { lines, writer, to_ask, keeper }
    }

    /// Sends and takes lines until the end of a connection; says why it has ended.
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

    /// A keeper is there, or is not any more: what waits asks anew.
    fn turn(&self, keeper: Option<Arc<Keeper>>, limits: Limits) {
        self.lock().keeper = keeper;
        self.take_limits(limits);
        self.0.turned.send_replace(());
    }

    /// Takes what a keeper tells, until it ends.
    async fn listen(&self, lines: &mut Lines, keeper: &Keeper) -> Refusal {
        loop {
            let line = match lines.next().await {
                Ok(Some(Line { text, .. })) => text,
                Ok(None) => return Refusal::Gone,
                Err(error) => return error.into(),
            };
            match Told::parse(&line) {
                Some(Told::Limits(limits)) => self.take_limits(limits),
                Some(Told::Granted(id)) => keeper.grant(id),
                Some(Told::Error(why)) => return Refusal::Told(why),
                None => return Refusal::nonsense(&line),
            }
        }
    }

    /// Looks for a keeper until there is one.
    async fn again(&self, mut told: Refusal) -> Connection {
        loop {
            sleep(PAUSE).await;
            match Connection::open(&self.0.path, self.class()).await {
                Ok(connection) => return connection,
                // That nobody is there was told.
                Err(why) if why == Refusal::Nobody || why == told => {}
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

    /// From now on these hold, also for what waits already.
    fn take_limits(&self, limits: Limits) {
        let mut state = self.lock();
        state.limits = limits;
        let ceil = state.ceil();
        let changes = state.sources.iter().map(|source| (source, limit(ceil)));
        let alone = (&self.0.alone, unsaved(limits.alone()));
        for (shaper, class) in changes.chain([alone]) {
            // Of a rate of 0 nothing passes here at all.
            drop(shaper.change(shaper.root(), class));
        }
    }

    fn limits(&self) -> Limits {
        self.lock().limits
    }

    fn keeper(&self) -> Option<Arc<Keeper>> {
        self.lock().keeper.clone()
    }

    /// A charge that is counted.
    fn counted(&self, charge: Charge) -> Charge {
        let (shared, charge) = (self.clone(), charge.sent());
        Charge::new(charge.bytes(), move |moved| {
            charge.settle(moved);
            let mut state = shared.lock();
            state.sent = state.sent.saturating_add(moved);
        })
    }

    /// Waits until a request may be sent while nobody keeps the tree.
    async fn alone(&self, bytes: u64) -> Charge {
        let alone = &self.0.alone;
        if self.limits().alone() == RateLimit::Zero {
            return pending().await;
        }
        match alone.traffic_class(alone.default_class()).pass(bytes).await {
            Some(charge) => charge,
            // Nobody closes it.
            None => pending().await,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduler for SharedClass {
    /// What waits when a keeper goes, or comes, asks again where it then has to.
    fn grant(&self, bytes: u64) -> Granting<'_> {
        Box::pin(async move {
            let mut turned = self.0.turned.subscribe();
            loop {
                turned.mark_unchanged();
                let charge = match self.keeper() {
                    Some(keeper) => keeper.granted(bytes).await,
                    None => tokio::select! {
                        biased;
                        // The sender lives as long as this.
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
    /// The most that passes now.
    fn ceil(&self) -> RateLimit {
        let alone = self.limits.alone();
        if self.keeper.is_some() || alone == RateLimit::Zero { self.limits.ceil() } else { alone }
    }
}

/// A class that saves nothing up.
fn unsaved(rate: RateLimit) -> Class {
    Class::new(rate).with_burst(Some(0)).with_cburst(Some(0))
}

/// What is asked over a connection, and answered.
#[derive(Debug)]
struct Conversation {
    lines: Lines,
    writer: OwnedWriteHalf,
    to_ask: mpsc::UnboundedReceiver<Asked>,
    keeper: Arc<Keeper>,
}

/// Sends what is asked, as it comes; says why it cannot.
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
