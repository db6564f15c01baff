//! One connection to a server: many requests at once, over one socket.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_nbd::client::{Answer, Goal, Handshake, HandshakeOutcome, Negotiated, Transmission};
use iscsi_nbd::{Command, Cookie, Errno, ProtocolError, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::NbdError;
use super::uri::{NbdUri, Place};
use super::writes::Write;

/// The longest range of one request without data, bytes; a multiple of every block size.
pub(super) const MAX_RANGE: u64 = 1 << 30;
/// How long a server may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// A connection. It ends when it is dropped and everything is answered.
#[derive(Debug)]
pub(super) struct Connection {
    state: Arc<Mutex<State>>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
}

#[derive(Debug)]
struct State {
    transmission: Transmission,
    waiting: HashMap<Cookie, Waiting>,
    /// It has ended without being asked to.
    is_lost: bool,
    /// Why, where the server is to blame.
    breach: Option<ProtocolError>,
}

/// Who waits for an answer; the write counts as under way until it comes, whether or not he still does.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<io::Result<Answer>>,
    _write: Option<Arc<Write>>,
}

#[derive(Debug)]
struct Outgoing {
    head: [u8; Request::LEN],
    data: Vec<Bytes>,
}

impl Connection {
    /// Connects to an export, and asks for a metadata context, which it need not have.
    pub(super) async fn open(uri: &NbdUri, context: &str) -> Result<(Self, Negotiated), NbdError> {
        let place = uri.place().to_string();
        let failed = |cause| NbdError::Connect { place: place.clone(), cause };
        let handshake = async {
            match uri.place() {
                Place::Tcp(host, port) => {
                    let stream =
                        TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
                    stream.set_nodelay(true).map_err(failed)?;
                    let (reader, writer) = stream.into_split();
                    shake_hands(uri, context, Reader::Tcp(reader), Writer::Tcp(writer)).await
                }
                Place::Unix(path) => {
                    let (reader, writer) =
                        UnixStream::connect(path).await.map_err(failed)?.into_split();
                    shake_hands(uri, context, Reader::Unix(reader), Writer::Unix(writer)).await
                }
            }
        };
        let shaken = timeout(HANDSHAKE, handshake).await;
        let (negotiated, reader, writer, input) =
            shaken.map_err(|_| NbdError::Silent(place.clone()))??;
        let transmission = Transmission::new(&negotiated);
        let state = State { transmission, waiting: HashMap::new(), is_lost: false, breach: None };
        let state = Arc::new(Mutex::new(state));
        let (outgoing, requests) = mpsc::unbounded_channel();
        tokio::spawn(send_all(Arc::clone(&state), requests, writer));
        tokio::spawn(receive_all(Arc::clone(&state), reader, input));
        Ok((Self { state, outgoing }, negotiated))
    }

    /// Whether it has ended without being asked to.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).is_lost
    }

    /// Reads into a buffer, which comes back filled.
    pub(super) async fn read(&self, offset: u64, buffer: BytesMut) -> io::Result<BytesMut> {
        let begin = |transmission: &mut Transmission| transmission.read_into(offset, buffer);
        match self.request(begin, Vec::new(), None).await? {
            Answer::Data(data) => Ok(data),
            Answer::Done | Answer::BlockStatus(_) => Err(unexpected()),
        }
    }

    /// Makes any other request, with the data of a write.
    pub(super) async fn ask(
        &self,
        command: Command,
        offset: u64,
        length: u32,
        data: Vec<Bytes>,
        write: Option<Arc<Write>>,
    ) -> io::Result<Answer> {
        let begin = |transmission: &mut Transmission| transmission.submit(command, offset, length);
        self.request(begin, data, write).await
    }

    async fn request(
        &self,
        begin: impl FnOnce(&mut Transmission) -> Result<Request, iscsi_nbd::Breach>,
        data: Vec<Bytes>,
        write: Option<Arc<Write>>,
    ) -> io::Result<Answer> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if state.is_lost {
                return Err(state.loss());
            }
            let request = begin(&mut state.transmission);
            let request =
                request.map_err(|cause| io::Error::new(io::ErrorKind::InvalidInput, cause))?;
            state.waiting.insert(request.cookie, Waiting { answer, _write: write });
            // Where nobody sends any more, the reader is about to say so.
            drop(self.outgoing.send(Outgoing { head: request.encode(), data }));
        }
        answered.await.unwrap_or_else(|_| Err(lock(&self.state).loss()))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// What those are told who get no answer.
    fn loss(&self) -> io::Error {
        match &self.breach {
            Some(breach) => {
                io::Error::new(io::ErrorKind::InvalidData, NbdError::from(breach.clone()))
            }
            None => io::Error::new(io::ErrorKind::ConnectionReset, NbdError::Lost),
        }
    }
}

pub(super) fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer of the wrong kind")
}

/// The way in.
enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// The way out.
enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl Reader {
    async fn read_buf(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_buf(input).await,
            Self::Unix(stream) => stream.read_buf(input).await,
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    fn try_read_buf(&self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_buf(input),
            Self::Unix(stream) => stream.try_read_buf(input),
        }
    }
}

impl Writer {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
        }
    }
}

async fn shake_hands(
    uri: &NbdUri,
    context: &str,
    mut reader: Reader,
    mut writer: Writer,
) -> Result<(Negotiated, Reader, Writer, BytesMut), NbdError> {
    let place = || uri.place().to_string();
    let contexts = vec![context.to_owned()];
    let goal = Goal::Export { name: uri.export().to_owned(), contexts };
    let (mut handshake, mut input) = (Handshake::new(goal), BytesMut::new());
    loop {
        let outcome = handshake.receive(&mut input);
        while let Some(bytes) = handshake.poll_transmit() {
            let sent = writer.write_all(&bytes).await;
            sent.map_err(|cause| NbdError::Connect { place: place(), cause })?;
        }
        match outcome.map_err(|cause| NbdError::Handshake { place: place(), cause })? {
            Some(HandshakeOutcome::Negotiated(negotiated)) => {
                return Ok((negotiated, reader, writer, input));
            }
            Some(HandshakeOutcome::Exports(_)) => return Err(NbdError::Lost),
            None => {}
        }
        input.reserve(66 << 10);
        let count = reader.read_buf(&mut input).await;
        if count.map_err(|cause| NbdError::Connect { place: place(), cause })? == 0 {
            return Err(NbdError::Silent(place()));
        }
    }
}

/// Sends requests until nobody has any more, and says goodbye.
async fn send_all(
    state: Arc<Mutex<State>>,
    mut requests: mpsc::UnboundedReceiver<Outgoing>,
    mut writer: Writer,
) {
    while let Some(Outgoing { head, data }) = requests.recv().await {
        let sent = async {
            writer.write_all(&head).await?;
            for page in &data {
                writer.write_all(page).await?;
            }
            io::Result::Ok(())
        };
        if sent.await.is_err() {
            return lose(&state);
        }
    }
    let goodbye = lock(&state).transmission.disconnect();
    drop(writer.write_all(&goodbye).await);
}

/// Takes answers until the server is gone.
async fn receive_all(state: Arc<Mutex<State>>, reader: Reader, mut input: BytesMut) {
    loop {
        if reader.readable().await.is_err() || !receive(&state, &reader, &mut input) {
            return lose(&state);
        }
    }
}

/// Takes what has come; whether there may be more.
fn receive(state: &Mutex<State>, reader: &Reader, input: &mut BytesMut) -> bool {
    let mut state = lock(state);
    let state = &mut *state;
    loop {
        loop {
            let completed = match state.transmission.receive(input) {
                Ok(Some(completed)) => completed,
                Ok(None) => break,
                Err(breach) => {
                    state.breach = Some(breach);
                    return false;
                }
            };
            if let Some(waiting) = state.waiting.remove(&completed.request.cookie) {
                let outcome = completed
                    .outcome
                    .map_err(|failure| io::Error::new(kind(failure.errno), failure));
                drop(waiting.answer.send(outcome));
            }
        }
        let landing = if input.is_empty() { state.transmission.landing() } else { &mut [] };
        let count = if landing.is_empty() {
            input.reserve(state.transmission.wanted());
            reader.try_read_buf(input)
        } else {
            let count = reader.try_read(landing);
            if let Ok(count) = count {
                state.transmission.landed(count);
            }
            count
        };
        match count {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Nobody is answered any more.
fn lose(state: &Mutex<State>) {
    let mut state = lock(state);
    state.is_lost = true;
    state.waiting.clear();
}

/// What kind of error a server has told.
const fn kind(errno: Errno) -> io::ErrorKind {
    match errno {
        Errno::Permission => io::ErrorKind::PermissionDenied,
        Errno::NoMemory => io::ErrorKind::OutOfMemory,
        Errno::Invalid | Errno::Overflow => io::ErrorKind::InvalidInput,
        Errno::NoSpace => io::ErrorKind::StorageFull,
        Errno::NotSupported => io::ErrorKind::Unsupported,
        Errno::Shutdown => io::ErrorKind::ConnectionAborted,
        Errno::Io => io::ErrorKind::Other,
    }
}
