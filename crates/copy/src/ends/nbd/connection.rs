//! Sends concurrent requests over one connection to a server.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{DeviceError, DeviceErrorKind, DeviceResult};
use iscsi_nbd::client::{Answer, Completed, Negotiated, Transmission};
use iscsi_nbd::{BASE_ALLOCATION, Breach, Command, Cookie, Errno, ProtocolError, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};

use super::NbdError;
use super::handshake::{CLOSED, CUT_OFF, Ready, shake_hands};
use super::losses::Losses;
use super::silence::Silence;
use super::socket::{Reader, Writer};
use super::uri::NbdUri;
use super::writes::Write;

/// Largest range of a request without data, bytes; a multiple of every block size.
pub(super) const MAX_RANGE: u64 = 1 << 30;
/// Number of connections to a server that accepts several.
pub(super) const MAX_CONNECTIONS: usize = 4;
/// Time limit of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// A connection. It is closed when it is dropped and all requests are answered.
#[derive(Debug)]
pub(super) struct Connection {
    state: Arc<Mutex<State>>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    /// Id of the metadata context that reports holes; `None` if the server lacks it. Each connection has its
    /// own id.
    allocation: Option<u32>,
}

/// Reasons why a request has no result.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection is lost. The request may or may not have been executed, and can be sent again over
    /// another connection.
    Lost,
    /// The server refuses the request, or the request breaks the negotiated terms.
    Refused(DeviceError),
}

#[derive(Debug)]
struct State {
    transmission: Transmission,
    waiting: HashMap<Cookie, Waiting>,
    silence: Silence,
    /// Bytes that were changed over this connection.
    changed: u64,
    /// The part of `changed` that a flush over this connection has covered.
    flushed: u64,
    losses: Arc<Losses>,
    /// Why the connection was lost; `None` while it is open.
    lost: Option<String>,
    /// The protocol error that ended the connection, if any.
    breach: Option<ProtocolError>,
}

/// A request that waits for its reply. A write stays in flight until the reply arrives, even if its caller
/// has dropped the future.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<DeviceResult<Answer>>,
    _write: Option<Arc<Write>>,
    /// Value of the connection's `changed` when the request began: a flush covers these bytes.
    changed: u64,
    /// Bytes that the server has to move to execute the request.
    work: u64,
}

#[derive(Debug)]
struct Outgoing {
    head: [u8; Request::LEN],
    data: Vec<Bytes>,
}

impl Connection {
    /// Connects to an export, and requests metadata contexts. The server may select only some of them.
    pub(super) async fn open(
        uri: &NbdUri,
        contexts: &[&str],
        losses: Arc<Losses>,
    ) -> Result<(Self, Negotiated), NbdError> {
        let shaken = timeout(HANDSHAKE, shake_hands(uri, contexts)).await;
        let silent = |_| NbdError::Silent(uri.place().to_string());
        let Ready { negotiated, reader, writer, input } = shaken.map_err(silent)??;
        let state = State {
            transmission: Transmission::new(&negotiated),
            waiting: HashMap::new(),
            silence: Silence::new(uri.command_timeout()),
            changed: 0,
            flushed: 0,
            losses,
            lost: None,
            breach: None,
        };
        let state = Arc::new(Mutex::new(state));
        let (outgoing, requests) = mpsc::unbounded_channel();
        let sender = tokio::spawn(send_all(Arc::clone(&state), requests, writer));
        tokio::spawn(receive_all(Arc::clone(&state), reader, input, sender.abort_handle()));
        let mut contexts = negotiated.contexts.iter();
        let allocation = contexts.find(|context| context.name == BASE_ALLOCATION);
        Ok((Self { state, outgoing, allocation: allocation.map(|context| context.id) }, negotiated))
    }

    /// Returns whether the connection is lost.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).lost.is_some()
    }

    /// Returns why the connection is lost.
    pub(super) fn why_lost(&self) -> Option<String> {
        lock(&self.state).lost.clone()
    }

    /// Returns the protocol error that ended the connection, if any.
    pub(super) fn breach(&self) -> Option<ProtocolError> {
        lock(&self.state).breach.clone()
    }

    /// Returns the error for a caller that does not send a lost request again.
    pub(super) fn loss(&self) -> NbdError {
        self.breach().map_or(NbdError::Lost, NbdError::from)
    }

    /// Returns the id of the context that reports holes.
    pub(super) const fn allocation(&self) -> Option<u32> {
        self.allocation
    }

    /// Reads into a buffer, and returns it filled.
    pub(super) async fn read(&self, offset: u64, buffer: BytesMut) -> Result<BytesMut, Failed> {
        let begin = |transmission: &mut Transmission| transmission.read_into(offset, buffer);
        match self.request(begin, Vec::new(), None).await? {
            Answer::Data(data) => Ok(data),
            Answer::Done | Answer::BlockStatus(_) => Err(Failed::Refused(unexpected())),
        }
    }

    /// Sends any request other than a read, with the data if it is a write.
    pub(super) async fn ask(
        &self,
        command: Command,
        offset: u64,
        length: u32,
        data: Vec<Bytes>,
        write: Option<Arc<Write>>,
    ) -> Result<Answer, Failed> {
        let begin = |transmission: &mut Transmission| transmission.submit(command, offset, length);
        self.request(begin, data, write).await
    }

    /// Flushes the changes over this connection. If the server supports no flush (`is_possible` is false), all
    /// changes with a reply count as flushed.
    pub(super) async fn flush(&self, is_possible: bool) -> Result<(), Failed> {
        if is_possible {
            return self.ask(Command::Flush, 0, 0, Vec::new(), None).await.map(drop);
        }
        let mut state = lock(&self.state);
        state.flushed = state.changed;
        if state.lost.is_some() { Err(Failed::Lost) } else { Ok(()) }
    }

    async fn request(
        &self,
        begin: impl FnOnce(&mut Transmission) -> Result<Request, Breach>,
        data: Vec<Bytes>,
        write: Option<Arc<Write>>,
    ) -> Result<Answer, Failed> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if state.lost.is_some() {
                return Err(Failed::Lost);
            }
            let request = begin(&mut state.transmission).map_err(|cause| {
                Failed::Refused(DeviceError::new(DeviceErrorKind::InvalidInput, cause))
            })?;
            let (changed, work) = (state.changed, state.work(&request));
            state.silence.begin(work);
            let waiting = Waiting { answer, _write: write, changed, work };
            state.waiting.insert(request.cookie, waiting);
            // A failed send is ignored: if the sending task has ended, the receiving task is about to report the loss.
            drop(self.outgoing.send(Outgoing { head: request.encode(), data }));
        }
        match answered.await {
            Ok(answer) => answer.map_err(Failed::Refused),
            Err(_) => Err(Failed::Lost),
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    const fn has_unflushed(&self) -> bool {
        self.changed > self.flushed
    }

    /// Returns the number of bytes that the server may have to move before it replies to a request.
    fn work(&self, request: &Request) -> u64 {
        match request.command {
            // The server has received about as many changes over each of its connections, and a flush may cover all of
            // them.
            Command::Flush => (self.changed - self.flushed).saturating_mul(MAX_CONNECTIONS as u64),
            Command::BlockStatus { .. } | Command::Cache => 0,
            Command::Read { .. }
            | Command::Write { .. }
            | Command::WriteZeroes { .. }
            | Command::Trim { .. } => request.length.into(),
        }
    }

    /// Passes the result of a request to its caller. Returns an error if the server is shutting down.
    fn complete(&mut self, completed: Completed) -> Result<(), String> {
        let Completed { request, outcome } = completed;
        let waiting = self.waiting.remove(&request.cookie);
        if let Some(waiting) = &waiting {
            self.silence.end(waiting.work);
        }
        match (&outcome, request.command) {
            // The callers see a lost connection, and send their requests again.
            (Err(failure), _) if failure.errno == Errno::Shutdown => {
                return Err(failure.to_string());
            }
            (Ok(_), Command::Write { .. } | Command::WriteZeroes { .. } | Command::Trim { .. }) => {
                self.changed += u64::from(request.length);
            }
            (Ok(_), Command::Flush) => {
                let changed = waiting.as_ref().map_or(0, |waiting| waiting.changed);
                self.flushed = self.flushed.max(changed);
            }
            _ => {}
        }
        self.losses.record_answer();
        let outcome = outcome.map_err(|failure| DeviceError::new(kind(failure.errno), failure));
        if let Some(waiting) = waiting {
            drop(waiting.answer.send(outcome));
        }
        Ok(())
    }

    /// Marks the connection as lost: all requests that wait fail.
    fn mark_lost(&mut self, why: String) {
        if self.lost.is_none() {
            self.lost = Some(why);
            self.losses.record_lost_connection(self.has_unflushed());
            self.waiting.clear();
        }
    }
}

pub(super) fn unexpected() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Protocol, "an answer of the wrong kind")
}

/// Sends requests until all senders are dropped, then the disconnect request.
async fn send_all(
    state: Arc<Mutex<State>>,
    mut requests: mpsc::UnboundedReceiver<Outgoing>,
    mut writer: Writer,
) {
    while let Some(Outgoing { head, data }) = requests.recv().await {
        let sent = async {
            send(&state, &mut writer, &head).await?;
            for page in &data {
                send(&state, &mut writer, page).await?;
            }
            writer.flush().await
        };
        if let Err(error) = sent.await {
            return lock(&state).mark_lost(error.to_string());
        }
    }
    let goodbye = lock(&state).transmission.disconnect();
    if writer.write_all(&goodbye).await.is_ok() {
        // Tells the server that the stream ends here, and was not cut off: close_notify (RFC 8446 §6.1), or FIN.
        drop(writer.shutdown().await);
    }
}

/// Sends all bytes. Each part that the socket accepts counts as a sign of life of the server.
async fn send(state: &Mutex<State>, writer: &mut Writer, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = writer.write(bytes).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(count..).unwrap_or_default();
        lock(state).silence.sign_of_life();
    }
    Ok(())
}

/// Receives replies until the connection is lost, or the server has been silent for too long.
async fn receive_all(
    state: Arc<Mutex<State>>,
    mut reader: Reader,
    mut input: BytesMut,
    sender: AbortHandle,
) {
    let first_look = lock(&state).silence.next_check();
    let mut look = pin!(sleep_until(first_look));
    let why = loop {
        tokio::select! {
            // Received replies are processed before the time limit is checked, because this process may have been
            // stopped meanwhile.
            biased;
            why = poll_fn(|context| poll_receive(context, &state, &mut reader, &mut input)) => {
                break why;
            }
            () = &mut look => {
                let state = lock(&state);
                if let Some(time) = state.silence.too_long() {
                    break format!("it has answered nothing for {} s", time.as_secs());
                }
                look.as_mut().reset(state.silence.next_check());
            }
        }
    };
    lock(&state).mark_lost(why);
    // The sending task may be blocked by a socket that accepts no more bytes.
    sender.abort();
}

/// Processes the bytes that have arrived, until nothing more can be received: returns the reason.
fn poll_receive(
    context: &mut Context<'_>,
    state: &Mutex<State>,
    reader: &mut Reader,
    input: &mut BytesMut,
) -> Poll<String> {
    let mut state = lock(state);
    let state = &mut *state;
    loop {
        loop {
            match state.transmission.receive(input) {
                Ok(Some(completed)) => {
                    if let Err(why) = state.complete(completed) {
                        return Poll::Ready(why);
                    }
                }
                Ok(None) => break,
                Err(breach) => {
                    let why = breach.to_string();
                    state.breach = Some(breach);
                    return Poll::Ready(why);
                }
            }
        }
        let landing = if input.is_empty() { state.transmission.landing() } else { &mut [] };
        let received = if landing.is_empty() {
            input.reserve(state.transmission.wanted());
            ready!(pin!(reader.read_buf(input)).poll(context))
        } else {
            let received = ready!(pin!(reader.read(landing)).poll(context));
            if let Ok(count) = received {
                state.transmission.landed(count);
            }
            received
        };
        match received {
            Ok(0) => return Poll::Ready(CLOSED.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Poll::Ready(CUT_OFF.to_owned());
            }
            Ok(_) => state.silence.sign_of_life(),
            Err(error) => return Poll::Ready(error.to_string()),
        }
    }
}

/// Returns the device error kind for an NBD error.
const fn kind(errno: Errno) -> DeviceErrorKind {
    match errno {
        Errno::Permission => DeviceErrorKind::Denied,
        Errno::NoMemory => DeviceErrorKind::OutOfMemory,
        Errno::Invalid | Errno::Overflow => DeviceErrorKind::InvalidInput,
        Errno::NoSpace => DeviceErrorKind::OutOfSpace,
        Errno::NotSupported => DeviceErrorKind::Unsupported,
        Errno::Shutdown => DeviceErrorKind::Aborted,
        Errno::Io => DeviceErrorKind::Other,
    }
}
