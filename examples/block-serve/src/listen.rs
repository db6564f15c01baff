//! Listens for clients, on Unix and TCP sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::failure::file_advice;
use iscsi_examples_common::named_socket::{NamedSocket, SocketAccess};
use listenfd::ListenFd;
use socket2::{SockRef, TcpKeepalive};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, lookup_host};

/// An address to listen at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host name or address of this host, and a port; 0 chooses a free one.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let tcp = text.strip_prefix("tcp:").filter(|address| {
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        });
        let tcp = tcp.map(|address| Self::Tcp(address.to_owned()));
        tcp.ok_or_else(|| "write unix:/PATH or tcp:HOST:PORT, as in tcp:127.0.0.1:10809".to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl Address {
    /// Returns the advice for an error of listening at this address.
    pub(crate) fn advice(&self, kind: io::ErrorKind) -> &'static str {
        match (self, kind) {
            (Self::Unix(_), _) => file_advice(kind),
            (Self::Tcp(_), io::ErrorKind::AddrNotAvailable) => {
                "; choose an address of this host, as tcp:127.0.0.1:10809"
            }
            (Self::Tcp(_), io::ErrorKind::PermissionDenied) => "; choose a port from 1024 on",
            (Self::Tcp(_), _) => "; check the host and the port",
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket with a path, which this program has created.
    Named(NamedSocket),
    /// A Unix socket that the parent process has opened.
    Unix(UnixListener),
    /// A TCP socket at an address.
    Tcp(TcpListener),
}

/// A source of clients: a listening socket, or anything else that yields streams of bytes.
pub trait Entrance: fmt::Debug + Send + Sync {
    /// Waits for the next client.
    ///
    /// # Errors
    /// If the system has no room for another connection, or the client has disconnected already.
    fn accept(&self) -> BoxFuture<'_, io::Result<Visitor>>;
}

/// The bytes of a client in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A client that has connected.
pub struct Visitor {
    stream: Box<dyn Stream>,
    name: String,
}

impl Visitor {
    /// Creates a client from a stream. `name` is used in the log.
    pub fn new(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        name: impl Into<String>,
    ) -> Self {
        Self { stream: Box::new(stream), name: name.into() }
    }

    /// Returns the stream and the name of the client.
    pub(crate) fn into_parts(self) -> (Box<dyn Stream>, String) {
        (self.stream, self.name)
    }
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens at an address. Only processes of the same user can connect to a Unix socket.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::AddrInUse`] if another process listens there.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        Self::bind_for(address, SocketAccess::default()).await
    }

    /// Listens at an address. A Unix socket gets the permissions and the group of `access`.
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind).
    pub async fn bind_for(address: &Address, access: SocketAccess) -> io::Result<Self> {
        match address {
            Address::Unix(path) => NamedSocket::bind_for(path, access).map(Self::Named),
            Address::Tcp(address) => {
                let mut last = io::ErrorKind::AddrNotAvailable.into();
                for address in lookup_host(address).await? {
                    match TcpListener::bind(address).await {
                        Ok(listener) => return Ok(Self::Tcp(listener)),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// Returns the sockets that the parent process has opened for this one (`LISTEN_FDS`).
    ///
    /// # Errors
    /// If one of them is no listening socket.
    pub fn inherited() -> io::Result<Vec<Self>> {
        let mut sockets = ListenFd::from_env();
        let mut listeners = Vec::new();
        for at in 0..sockets.len() {
            // A socket that is of another kind stays in the list, and is tried as that kind next.
            if let Ok(Some(socket)) = sockets.take_unix_listener(at) {
                check_listens(SockRef::from(&socket))?;
                socket.set_nonblocking(true)?;
                listeners.push(Self::Unix(UnixListener::from_std(socket)?));
            } else if let Some(socket) = sockets.take_tcp_listener(at)? {
                check_listens(SockRef::from(&socket))?;
                socket.set_nonblocking(true)?;
                listeners.push(Self::Tcp(TcpListener::from_std(socket)?));
            }
        }
        Ok(listeners)
    }

    /// Returns the local address of a TCP socket.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        if let Self::Tcp(listener) = self { listener.local_addr().ok() } else { None }
    }
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, address) = listener.accept().await?;
    // The outbox already combines small replies, so the kernel need not delay them.
    stream.set_nodelay(true)?;
    keep_alive(&stream)?;
    Ok((stream, address))
}

/// Idle time before the first keepalive probe of a client, and between two probes. The initiator has the same
/// values for targets.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Number of unanswered probes after which the client counts as gone.
const KEEPALIVE_COUNT: u32 = 3;

/// Makes the kernel probe an idle client. Without probes, the client of a host that was switched off would keep
/// its place forever.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_COUNT);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

impl Entrance for Listener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Visitor>> {
        boxed(async move {
            const OF_THIS_HOST: &str = "a process of this host";
            match self {
                Self::Named(socket) => {
                    Ok(Visitor::new(socket.listener().accept().await?.0, OF_THIS_HOST))
                }
                Self::Unix(listener) => Ok(Visitor::new(listener.accept().await?.0, OF_THIS_HOST)),
                Self::Tcp(listener) => {
                    let (stream, address) = accept_tcp(listener).await?;
                    Ok(Visitor::new(stream, address.to_string()))
                }
            }
        })
    }
}

/// Returns an error for a socket that is connected, on which `accept` would always fail.
fn check_listens(socket: SockRef<'_>) -> io::Result<()> {
    if socket.is_listener()? {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is the connection of a client; one server has all clients of a unit, so set Accept=no in the unit of the socket",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, accept_tcp(&listener));
        let (stream, _) = accepted.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_COUNT);
    }

    #[test]
    fn addresses_are_told_apart() {
        assert_eq!("unix:/run/disk.sock".parse(), Ok(Address::Unix("/run/disk.sock".into())));
        for text in ["tcp:127.0.0.1:0", "tcp:[::1]:10809", "tcp:host:10809"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in
            ["", "unix:", "tcp:", "tcp:host", "tcp::10809", "tcp:host:x", "tcp:host:70000", "/path"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
