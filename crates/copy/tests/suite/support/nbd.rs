//! An NBD server that is killed, comes back, sends nothing, or refuses clients.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use iscsi_copy::NbdUri;
use iscsi_nbd::server::{
    Handshake, HandshakeEvent, Negotiated, Replies, Transmission, TransmissionEvent,
};
use iscsi_nbd::{Command, Errno, Export, Extent, Request, TransmissionFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// A server of one export in memory, at a Unix socket.
pub(crate) struct NbdServer {
    shared: Arc<Shared>,
    path: PathBuf,
    listening: Option<AbortHandle>,
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
}

impl NbdServer {
    /// Starts a server, which allows several connections if `takes_several`.
    pub(crate) fn start(path: &Path, bytes: Vec<u8>, takes_several: bool) -> Self {
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
        };
        let shared = Shared { state: Mutex::new(state), cuts: watch::Sender::new(0) };
        let mut server = Self { shared: Arc::new(shared), path: path.into(), listening: None };
        server.listen();
        server
    }

    pub(crate) fn uri(&self, query: &str) -> NbdUri {
        format!("nbd+unix:///?socket={}{query}", self.path.display()).parse().unwrap()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, NbdState> {
        self.shared.lock()
    }

    /// Listens at the path, where an earlier server may have listened.
    pub(crate) fn listen(&mut self) {
        let listener = UnixListener::bind(&self.path).unwrap();
        let shared = Arc::clone(&self.shared);
        let listening = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                clients.spawn(Arc::clone(&shared).serve(stream));
            }
        });
        self.listening = Some(listening.abort_handle());
    }

    /// Kills the server: connections are closed, and it does not listen any more.
    pub(crate) fn kill(&mut self) {
        self.listening.take().unwrap().abort();
        std::fs::remove_file(&self.path).unwrap();
        self.shared.die();
    }

    /// Returns the number of received requests of a kind.
    pub(crate) fn count(&self, command: Command) -> usize {
        self.lock().requests.iter().filter(|(_, request)| request.command == command).count()
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

    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let mut cuts = self.cuts.subscribe();
        tokio::select! {
            biased;
            _ = cuts.changed() => {}
            () = self.talk(stream) => {}
        }
    }

    /// Performs the handshake; returns the negotiated terms, or `None` if the client has closed the
    /// connection.
    async fn shake_hands(
        &self,
        stream: &mut UnixStream,
        input: &mut BytesMut,
    ) -> Option<Negotiated> {
        let mut handshake = Handshake::new();
        loop {
            let event = handshake.receive(input).unwrap();
            if let Some(HandshakeEvent::Export(_)) = &event {
                handshake.answer_export(self.lock().export.clone());
            }
            while let Some(bytes) = handshake.poll_transmit() {
                drop(stream.write_all(&bytes).await);
            }
            match event {
                Some(HandshakeEvent::Negotiated(negotiated)) => return Some(negotiated),
                Some(_) => {}
                None if stream.read_buf(input).await.unwrap_or(0) == 0 => return None,
                None => {}
            }
        }
    }

    async fn talk(&self, mut stream: UnixStream) {
        let (client, has_room) = {
            let mut state = self.lock();
            state.clients += 1;
            (state.clients - 1, state.clients <= state.room)
        };
        if !has_room {
            return std::future::pending().await;
        }
        let mut input = BytesMut::new();
        let Some(negotiated) = self.shake_hands(&mut stream, &mut input).await else { return };
        let mut transmission = Transmission::new(&negotiated);
        let context = negotiated.contexts.first().map_or(0, |context| context.id);
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
                if !self.lives_on() || stream.write_all(&reply).await.is_err() {
                    return;
                }
            }
            if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    fn answer(&self, replies: Replies, context: u32, request: &Request, data: &[u8]) -> Bytes {
        if self.lock().is_shutting_down {
            return replies.error(request.cookie, Errno::Shutdown, "");
        }
        let read = self.carry_out(request, data);
        match request.command {
            Command::Read { .. } => {
                [&Bytes::from(replies.read(request))[..], &read].concat().into()
            }
            Command::BlockStatus { .. } => {
                let whole = [Extent { length: request.length.into(), status: 0 }];
                replies.block_status(request, context, whole, true).unwrap()
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

impl Drop for NbdServer {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }
}
