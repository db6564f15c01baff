//! Starts a unit, a server of it in this process, and clients.
#![allow(clippy::cast_possible_truncation, reason = "lengths of tests are short")]

pub(crate) mod process;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use block_serve::{Address, ClientTls, Layers, Listener, Server, Stop, StopButton, describe};
use bytes::Bytes;
use iscsi_copy::NbdDevice;
use iscsi_examples_testkit::within_time_limit;
use iscsi_initiator::{Initiator, Options};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server as Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, yield_now};

pub(crate) const LEN: usize = 8 << 20;
pub(crate) const WINDOW: u32 = 1 << 20;
pub(crate) const MEMORY: u64 = 1 << 20;
/// Memory for the requests of all clients, in bytes.
pub(crate) const HELD: u32 = 128 << 20;
/// Number of places for clients.
pub(crate) const CLIENTS: usize = 256;

/// A unit, a server of it, and the server's socket.
pub(crate) struct Rig {
    pub(crate) disk: RamDisk,
    pub(crate) target: Target,
    pub(crate) socket: PathBuf,
    pub(crate) server: Arc<Server>,
    pub(crate) button: StopButton,
    pub(crate) running: JoinHandle<()>,
}

/// Waits for work. Fails the test after a time limit.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    within_time_limit(work).await.expect("it waits for ever")
}

impl Rig {
    /// Starts a server with a write-behind window of `window` bytes and a cache of `memory` bytes.
    pub(crate) async fn start(window: u32, memory: u64, is_read_only: bool) -> Self {
        Self::with_unit(LEN as u64, window, memory, is_read_only).await
    }

    /// Starts a server of a unit of `len` bytes.
    pub(crate) async fn with_unit(len: u64, window: u32, memory: u64, is_read_only: bool) -> Self {
        Self::before(RamDisk::new(512, len / 512), window, memory, is_read_only).await
    }

    /// Starts a server of a unit with this disk.
    pub(crate) async fn before(
        disk: RamDisk,
        window: u32,
        memory: u64,
        is_read_only: bool,
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut config = TargetConfig::new("iqn.2026-01.org.example:disk", disk.clone());
        config.keys.default_time2wait = 0;
        config.units.values_mut().for_each(|unit| unit.behavior.provisioning = Some(0xe4));
        let target = Target::start(iscsi_testkit::target::Target::new(config)).await.unwrap();
        let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", target.address());
        let options = Options::default().with_retry_timeout(Duration::from_secs(3));
        let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap();
        let unit = soon(initiator.disk(url)).await.unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("block-serve-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = Listener::bind(&Address::Unix(socket.clone())).await.unwrap();
        let export = describe(&unit, "disk", is_read_only);
        let server = Server::new(
            Layers::new(unit, window, memory),
            export,
            ClientTls::default(),
            HELD,
            CLIENTS,
        );
        let (button, stop) = Stop::new();
        let serving = Arc::clone(&server);
        let running = tokio::spawn(async move { serving.run(&[listener], &stop, false).await });
        Self { disk, target, socket, server, button, running }
    }

    pub(crate) async fn client(&self) -> NbdDevice {
        let uri = format!("nbd+unix:///disk?socket={}&patience=0", self.socket.display());
        soon(NbdDevice::open(&uri.parse().unwrap())).await.unwrap()
    }

    /// Connects to the server. Retries while its backlog is full.
    pub(crate) async fn raw(&self) -> UnixStream {
        connect(&self.socket).await
    }
}

pub(crate) fn bytes(seed: usize, len: usize) -> Bytes {
    (0..len).map(|at| (seed * 31 + at / 7 + at) as u8 | 1).collect()
}

/// Connects to a server. Retries while its backlog is full.
pub(crate) async fn connect(socket: &Path) -> UnixStream {
    soon(async {
        loop {
            match UnixStream::connect(socket).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => yield_now().await,
                stream => return stream.unwrap(),
            }
        }
    })
    .await
}

/// A client that can send any bytes (proto.md of NetworkBlockDevice/nbd), and parses simple replies.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    /// Cookie of the last request.
    cookie: u64,
}

/// Command types, as proto.md numbers them.
pub(crate) mod kind {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
}

/// Error values, as proto.md numbers them.
pub(crate) mod errno {
    pub(crate) const PERM: u32 = 1;
    pub(crate) const IO: u32 = 5;
    pub(crate) const INVAL: u32 = 22;
    pub(crate) const NOSPC: u32 = 28;
}

/// The flag NBD_CMD_FLAG_FUA.
pub(crate) const FUA: u16 = 1;

impl Raw {
    /// Completes the handshake for the default export. Requests can be sent after it.
    pub(crate) async fn shake_hands(mut stream: UnixStream) -> Self {
        stream.read_exact(&mut [0; 18]).await.unwrap();
        // FIXED_NEWSTYLE, NO_ZEROES; then NBD_OPT_EXPORT_NAME.
        stream.write_all(&[0, 0, 0, 3]).await.unwrap();
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").await.unwrap();
        stream.read_exact(&mut [0; 10]).await.unwrap();
        Self { stream, cookie: 0 }
    }

    /// Sends the head of a request.
    pub(crate) async fn send(&mut self, flags: u16, kind: u16, offset: u64, length: u32) {
        self.cookie += 1;
        let mut head = vec![0x25, 0x60, 0x95, 0x13];
        head.extend_from_slice(&flags.to_be_bytes());
        head.extend_from_slice(&kind.to_be_bytes());
        head.extend_from_slice(&self.cookie.to_be_bytes());
        head.extend_from_slice(&offset.to_be_bytes());
        head.extend_from_slice(&length.to_be_bytes());
        soon(self.stream.write_all(&head)).await.unwrap();
    }

    /// Returns the error of the reply to the last request; 0 means success.
    pub(crate) async fn error(&mut self) -> u32 {
        let mut reply = [0; 16];
        soon(self.stream.read_exact(&mut reply)).await.unwrap();
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        assert_eq!(reply[8..], self.cookie.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    /// Sends a request whose reply has no data. Returns the error of the reply; 0 means success.
    pub(crate) async fn ask(&mut self, flags: u16, kind: u16, offset: u64, length: u32) -> u32 {
        self.send(flags, kind, offset, length).await;
        self.error().await
    }

    pub(crate) async fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.send(flags, kind::WRITE, offset, data.len() as u32).await;
        soon(self.stream.write_all(data)).await.unwrap();
        self.error().await
    }

    pub(crate) async fn flush(&mut self) -> u32 {
        self.ask(0, kind::FLUSH, 0, 0).await
    }

    pub(crate) async fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        match self.ask(0, kind::READ, offset, length).await {
            0 => {
                let mut data = vec![0; length as usize];
                soon(self.stream.read_exact(&mut data)).await.unwrap();
                Ok(data)
            }
            error => Err(error),
        }
    }
}
