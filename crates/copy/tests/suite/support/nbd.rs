//! An NBD server that is killed, comes back, sends nothing, or refuses clients.

mod veil;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use iscsi_copy::{NbdStream, NbdUri};
use iscsi_nbd::server::{
    Handshake, HandshakeEvent, Negotiated, Replies, TlsPolicy, Transmission, TransmissionEvent,
};
use iscsi_nbd::{
    BASE_ALLOCATION, Command, Errno, Export, Extent, MetaContext, Request, TransmissionFlags,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

pub(crate) use veil::Veil;

/// A server of one export in memory, at a Unix socket or a TCP port.
pub(crate) struct NbdServer {
    shared: Arc<Shared>,
    place: Place,
    listening: Option<AbortHandle>,
}

enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

struct Shared {
    state: Mutex<NbdState>,
    /// Number of times that all connections were closed.
    cuts: watch::Sender<u64>,
}

pub(crate) struct NbdState {
    pub(crate) export: Export,
    /// The data that reads return, and the data after a kill.
    pub(crate) bytes: Vec<u8>,
    pub(crate) medium: Vec<u8>,
    /// Received requests, each with the number of its connection.
    pub(crate) requests: Vec<(usize, Request)>,
    /// Number of clients that have connected, and the number of clients that are served; later clients get no
    /// reply.
    pub(crate) clients: usize,
    pub(crate) room: usize,
    /// Whether the server sends no replies.
    pub(crate) is_silent: bool,
    /// Whether the server replies that it is shutting down, and executes nothing.
    pub(crate) is_shutting_down: bool,
    /// Whether the server accepts clients, and closes their connections at the first request.
    pub(crate) is_broken: bool,
    /// Number of steps until the server is killed; a request has two: its execution and its reply.
    pub(crate) lives: Option<usize>,
    /// Whether a kill loses unflushed writes.
    pub(crate) forgets: bool,
    pub(crate) tls: ServerTls,
}

/// TLS of a server. Its place is taken by a [`Veil`].
#[derive(Default)]
pub(crate) struct ServerTls {
    pub(crate) policy: TlsPolicy,
    /// Whether the server closes connections once it has accepted NBD_OPT_STARTTLS.
    pub(crate) leaves: bool,
    /// What clients have sent in clear text during handshakes.
    pub(crate) clear: Vec<u8>,
}

impl NbdServer {
    /// Starts a server at a Unix socket, which allows several connections if `takes_several`.
    pub(crate) fn start(path: &Path, bytes: Vec<u8>, takes_several: bool) -> Self {
        let mut server = Self::new(Place::Unix(path.into()), bytes, takes_several);
        server.listen();
        server
    }

    /// Starts a server at a free TCP port.
    pub(crate) fn start_with_tls(policy: TlsPolicy, bytes: Vec<u8>, takes_several: bool) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let mut server = Self::new(place, bytes, takes_several);
        server.lock().tls.policy = policy;
        server.listen_with(Listener::Tcp(TcpListener::from_std(listener).unwrap()));
        server
    }

    fn new(place: Place, bytes: Vec<u8>, takes_several: bool) -> Self {
        let flags = TransmissionFlags::HAS_FLAGS
            | TransmissionFlags::FLUSH
            | TransmissionFlags::WRITE_ZEROES;
        let export = Export {
            size: bytes.len() as u64,
            flags: flags.with_if(takes_several, TransmissionFlags::MULTI_CONN),
            contexts: vec!["base:allocation".to_owned()],
            ..Export::default()
        };
        let state = NbdState {
            export,
            medium: bytes.clone(),
            bytes,
            requests: Vec::new(),
            clients: 0,
            room: usize::MAX,
            is_silent: false,
            is_shutting_down: false,
            is_broken: false,
            lives: None,
            forgets: true,
            tls: ServerTls::default(),
        };
        let shared = Shared { state: Mutex::new(state), cuts: watch::Sender::new(0) };
        Self { shared: Arc::new(shared), place, listening: None }
    }

    pub(crate) fn uri(&self, query: &str) -> NbdUri {
        let uri = match &self.place {
            Place::Unix(path) => format!("nbd+unix:///?socket={}{query}", path.display()),
            Place::Tcp(address) => format!("nbds://{address}/disk?{query}"),
        };
        uri.parse().unwrap()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, NbdState> {
        self.shared.lock()
    }

    /// Listens at the path, where an earlier server may have listened.
    pub(crate) fn listen(&mut self) {
        let Place::Unix(path) = &self.place else { panic!("only a Unix socket is used again") };
        let listener = UnixListener::bind(path).unwrap();
        self.listen_with(Listener::Unix(listener));
    }

    fn listen_with(&mut self, listener: Listener) {
        let shared = Arc::clone(&self.shared);
        let listening = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok(stream) = listener.accept().await {
                clients.spawn(Arc::clone(&shared).serve(stream));
            }
        });
        self.listening = Some(listening.abort_handle());
    }

    /// Kills the server: connections are closed, and it does not listen any more.
    pub(crate) fn kill(&mut self) {
        self.listening.take().unwrap().abort();
        if let Place::Unix(path) = &self.place {
            std::fs::remove_file(path).unwrap();
        }
        self.shared.die();
    }

    /// Returns the number of received requests of a kind.
    pub(crate) fn count(&self, command: Command) -> usize {
        self.lock().requests.iter().filter(|(_, request)| request.command == command).count()
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn NbdStream>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, NbdState> {
        self.state.lock().unwrap()
    }

    /// Closes all connections, and perhaps loses unflushed writes.
    fn die(&self) {
        let mut state = self.lock();
        if state.forgets {
            state.bytes = state.medium.clone();
        }
        state.lives = None;
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Counts a step, and returns whether the server is still alive.
    fn lives_on(&self) -> bool {
        let mut state = self.lock();
        match &mut state.lives {
            Some(0) => {
                drop(state);
                self.die();
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    async fn serve(self: Arc<Self>, stream: Box<dyn NbdStream>) {
        let mut cuts = self.cuts.subscribe();
        tokio::select! {
            biased;
            _ = cuts.changed() => {}
            () = self.talk(stream) => {}
        }
    }

    /// Performs the handshake; returns the negotiated terms and the stream, which is veiled if the client has started TLS, or
    /// `None` if the client has closed the connection.
    async fn shake_hands(
        &self,
        mut stream: Box<dyn NbdStream>,
        input: &mut BytesMut,
    ) -> Option<(Negotiated, Box<dyn NbdStream>)> {
        let mut handshake = Handshake::new().with_tls(self.lock().tls.policy);
        let mut is_clear = true;
        loop {
            let event = handshake.receive(input).unwrap();
            if let Some(HandshakeEvent::Export(_)) = &event {
                handshake.answer_export(self.lock().export.clone());
            }
            while let Some(bytes) = handshake.poll_transmit() {
                drop(send(&mut stream, &bytes).await);
            }
            match event {
                Some(HandshakeEvent::Negotiated(negotiated)) => return Some((negotiated, stream)),
                Some(HandshakeEvent::StartTls) if self.lock().tls.leaves => return None,
                Some(HandshakeEvent::StartTls) => {
                    stream = Box::new(Veil::over(stream));
                    is_clear = false;
                }
                Some(_) => {}
                None => {
                    let had = input.len();
                    if stream.read_buf(input).await.unwrap_or(0) == 0 {
                        return None;
                    }
                    if is_clear {
                        self.lock().tls.clear.extend_from_slice(&input[had..]);
                    }
                }
            }
        }
    }

    async fn talk(&self, stream: Box<dyn NbdStream>) {
        let (client, has_room) = {
            let mut state = self.lock();
            state.clients += 1;
            (state.clients - 1, state.clients <= state.room)
        };
        if !has_room {
            return std::future::pending().await;
        }
        let mut input = BytesMut::new();
        let shaken = self.shake_hands(stream, &mut input).await;
        let Some((negotiated, mut stream)) = shaken else { return };
        let mut transmission = Transmission::new(&negotiated);
        let context = negotiated.contexts.first();
        loop {
            while let Some(event) = transmission.receive(&mut input).unwrap() {
                let (request, data) = match event {
                    TransmissionEvent::Request(request) => (request, Bytes::new()),
                    TransmissionEvent::Write(request, data) => (request, data),
                    TransmissionEvent::Refused(_) | TransmissionEvent::Disconnect => return,
                };
                self.lock().requests.push((client, request));
                if self.lock().is_broken || !self.lives_on() {
                    return;
                }
                let is_silent = self.lock().is_silent;
                if is_silent {
                    continue;
                }
                let reply = self.answer(transmission.replies(), context, &request, &data);
                if !self.lives_on() || send(&mut stream, &reply).await.is_err() {
                    return;
                }
            }
            if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    /// Executes a request, and returns the reply. All bytes are data, and each bitmap marks them.
    fn answer(
        &self,
        replies: Replies,
        context: Option<&MetaContext>,
        request: &Request,
        data: &[u8],
    ) -> Bytes {
        if self.lock().is_shutting_down {
            return replies.error(request.cookie, Errno::Shutdown, "");
        }
        let read = self.carry_out(request, data);
        match request.command {
            Command::Read { .. } => {
                [&Bytes::from(replies.read(request))[..], &read].concat().into()
            }
            Command::BlockStatus { .. } => {
                let status = context.map_or(0, |context| (context.name != BASE_ALLOCATION).into());
                let whole = [Extent { length: request.length.into(), status }];
                let id = context.map_or(0, |context| context.id);
                replies.block_status(request, id, whole, true).unwrap()
            }
            Command::Write { .. }
            | Command::WriteZeroes { .. }
            | Command::Trim { .. }
            | Command::Flush
            | Command::Cache => replies.done(request.cookie).into(),
        }
    }

    fn carry_out(&self, request: &Request, data: &[u8]) -> Vec<u8> {
        let mut state = self.lock();
        let range = request.offset as usize..request.offset as usize + request.length as usize;
        match request.command {
            Command::Read { .. } => return state.bytes[range].to_vec(),
            Command::Write { .. } => state.bytes[range].copy_from_slice(data),
            Command::WriteZeroes { .. } => state.bytes[range].fill(0),
            Command::Flush => state.medium = state.bytes.clone(),
            Command::BlockStatus { .. } | Command::Trim { .. } | Command::Cache => {}
        }
        Vec::new()
    }
}

async fn send(stream: &mut Box<dyn NbdStream>, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }
}
