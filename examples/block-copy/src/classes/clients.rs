//! Serves the clients: other processes, whose copies use the traffic classes in the tree of this process, the
//! keeper. The keeper grants each request of a client, over the keeper's control socket.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_initiator::TrafficClass;
use iscsi_initiator::shaping::Charge;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::classes::lines::{Line, Lines};
use crate::classes::protocol::{Asked, Limits, Reply, divided};
use crate::classes::{Classes, ClassesError, Fund};

/// Largest number of processes that may share the tree.
pub(crate) const MAX_CLIENTS: usize = 48;
/// Largest number of concurrent requests of one client: those that wait for a grant, and those in flight.
const MAX_REQUESTS: usize = 4096;

/// The clients: processes that share the tree of classes of this process. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    classes: Classes,
    state: Arc<Mutex<State>>,
    /// Notifies the clients' connections when classes or the number of clients change.
    changed: Arc<watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the next client.
    serial: u64,
    present: BTreeMap<u64, Present>,
}

/// A client that is connected.
#[derive(Clone, Debug)]
struct Present {
    process: Option<i32>,
    class: Option<String>,
    fund: Fund,
    sent: u64,
    waiting: usize,
}

/// Reasons why a process cannot share the tree.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(transparent)]
    Class(#[from] ClassesError),
    #[error("{MAX_CLIENTS} processes share the classes already; let one of them end first")]
    TooMany,
}

impl Clients {
    pub(crate) fn new(classes: Classes) -> Self {
        Self { classes, state: Arc::default(), changed: Arc::default() }
    }

    /// Admits a client to the class `class`, or to the default class.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) fn admit(
        &self,
        class: Option<&str>,
        process: Option<i32>,
    ) -> Result<Client, ClientError> {
        let (traffic, fund) = (self.classes.paying(class)?, self.classes.fund(class)?.0);
        let mut state = self.lock();
        if state.present.len() >= MAX_CLIENTS {
            return Err(ClientError::TooMany);
        }
        state.serial += 1;
        let (serial, class) = (state.serial, class.map(str::to_owned));
        let present = Present { process, class: class.clone(), fund, sent: 0, waiting: 0 };
        state.present.insert(serial, present);
        drop(state);
        self.changed();
        Ok(Client { clients: self.clone(), serial, class, traffic })
    }

    /// Announces a change of the classes: each client receives its new limits.
    pub(crate) fn changed(&self) {
        let mut state = self.lock();
        for present in state.present.values_mut() {
            if let Ok((fund, _)) = self.classes.fund(present.class.as_deref()) {
                present.fund = fund;
            }
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Returns the clients as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let state = self.lock();
        let client = |Present { process, class, sent, waiting, .. }: &Present| {
            json!({
                "pid": process,
                "class": class,
                "sent_bytes": sent,
                "waiting_requests": waiting,
            })
        };
        state.present.values().map(client).collect()
    }

    /// Returns the limits that each client of a class gets.
    fn limits(&self, class: Option<&str>) -> Result<Limits, ClassesError> {
        let (ceil, (fund, rate)) = (self.classes.ceil(class)?, self.classes.fund(class)?);
        let state = self.lock();
        let sharing = state.present.values().filter(|present| present.fund == fund);
        Ok(Limits::new(ceil, divided(rate.min(ceil), sharing.count())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An admitted client. Dropping it removes the client.
#[derive(Debug)]
pub(crate) struct Client {
    clients: Clients,
    serial: u64,
    class: Option<String>,
    traffic: TrafficClass,
}

impl Client {
    /// Grants the client's requests until its connection ends. Then waiting requests are dropped. Granted
    /// requests stay charged.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) async fn serve(self, lines: Lines, writer: OwnedWriteHalf) -> io::Result<()> {
        let mut requests = Requests::default();
        let result = self.converse(lines, writer, &mut requests).await;
        // Waiting requests are dropped before `self`, because the client must be counted as long as it has any.
        requests.tasks.shutdown().await;
        result
    }

    async fn converse(
        &self,
        mut lines: Lines,
        mut writer: OwnedWriteHalf,
        requests: &mut Requests,
    ) -> io::Result<()> {
        let (mut changed, mut last) = (self.clients.changed.subscribe(), None);
        loop {
            changed.mark_unchanged();
            let limits = self.clients.limits(self.class.as_deref()).ok();
            if let Some(limits) = limits.filter(|limits| last.replace(*limits) != Some(*limits)) {
                send_reply(&mut writer, &Reply::Limits(limits)).await?;
            }
            tokio::select! {
                biased;
                // `changed` cannot return an error: the sender lives as long as `self`.
                _ = changed.changed() => {}
                Some(id) = requests.granted() => send_reply(&mut writer, &Reply::Granted(id)).await?,
                line = lines.next() => {
                    let Some(Line { text, .. }) = line? else { return Ok(()) };
                    if let Err(why) = requests.take(&text, &self.traffic) {
                        return send_reply(&mut writer, &Reply::Error(why)).await;
                    }
                }
            }
            self.record_requests(requests);
        }
    }

    fn record_requests(&self, requests: &Requests) {
        if let Some(present) = self.clients.lock().present.get_mut(&self.serial) {
            (present.sent, present.waiting) = (requests.sent, requests.waiting);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.lock().present.remove(&self.serial);
        self.clients.changed();
    }
}

async fn send_reply(writer: &mut OwnedWriteHalf, reply: &Reply) -> io::Result<()> {
    writer.write_all(reply.to_string().as_bytes()).await
}

/// The requests of one client: those that wait, and those that were granted and whose moved bytes the client
/// has not reported yet.
#[derive(Debug, Default)]
struct Requests {
    tasks: JoinSet<(u64, Option<Charge>)>,
    known: BTreeMap<u64, Request>,
    last: u64,
    waiting: usize,
    sent: u64,
}

#[derive(Debug)]
enum Request {
    Waiting(AbortHandle),
    Granted { bytes: u64, charge: Charge },
}

impl Requests {
    /// Handles a line of the client.
    ///
    /// # Errors
    /// A message that says what is wrong with the line.
    fn take(&mut self, line: &str, class: &TrafficClass) -> Result<(), String> {
        match Asked::parse(line) {
            Some(Asked::Take { id, bytes }) => self.begin(id, bytes, class),
            Some(Asked::Moved { id, bytes }) => {
                self.end(id, bytes);
                Ok(())
            }
            None => Err(format!("{:?} is nothing that a shared class knows", line.trim_end())),
        }
    }

    fn begin(&mut self, id: u64, bytes: u64, class: &TrafficClass) -> Result<(), String> {
        if id <= self.last {
            return Err(format!("the request {id} comes after {}; ids rise", self.last));
        }
        if self.known.len() >= MAX_REQUESTS {
            return Err(format!("more than {MAX_REQUESTS} concurrent requests"));
        }
        self.last = id;
        let class = class.clone();
        let task = self.tasks.spawn(async move { (id, class.pass(bytes).await) });
        self.known.insert(id, Request::Waiting(task));
        self.waiting += 1;
        Ok(())
    }

    /// Ends a request. `moved` is the number of bytes that it moved; 0 if it was dropped while it waited.
    fn end(&mut self, id: u64, moved: u64) {
        match self.known.remove(&id) {
            Some(Request::Waiting(task)) => {
                task.abort();
                self.waiting -= 1;
            }
            Some(Request::Granted { bytes, charge }) => {
                charge.complete(moved);
                self.sent = self.sent.saturating_sub(bytes).saturating_add(moved);
            }
            // An unknown id has no charge to correct.
            None => {}
        }
    }

    /// Waits until the class grants one of the waiting requests. Charges its bytes, and returns its id. Returns
    /// `None` if no request waits.
    async fn granted(&mut self) -> Option<u64> {
        loop {
            // A task that was aborted by `end` ends with an error. If the grant came before the abort, the
            // request is not in `known` any more, and dropping the charge returns the bytes to the class.
            let Ok((id, Some(charge))) = self.tasks.join_next().await? else { continue };
            let Some(request) = self.known.get_mut(&id) else { continue };
            let bytes = charge.bytes();
            *request = Request::Granted { bytes, charge: charge.sent() };
            self.waiting -= 1;
            self.sent += bytes;
            return Some(id);
        }
    }
}
