//! The socket of a connection.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::tls::NbdStream;
use super::uri::Place;

/// Idle time before the first keepalive probe, interval of the probes, and number of unanswered probes after
/// which the connection ends: the same values as the initiator's.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(30), 3);

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<dyn NbdStream>),
}

/// The receiving half of a connection.
pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// The sending half of a connection.
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Connects to the address of a server.
pub(super) async fn connect(place: &Place) -> io::Result<Socket> {
    match place {
        Place::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            keep_alive(&stream)?;
            Ok(Socket::Tcp(stream))
        }
        Place::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
    }
}

impl Socket {
    pub(super) const fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Reads into a buffer with room, and returns how many bytes; 0 at the end.
    pub(super) async fn read_buf(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_buf(input).await,
            Self::Unix(stream) => stream.read_buf(input).await,
            Self::Tls(stream) => stream.read_buf(input).await,
        }
    }

    /// Writes all bytes, and sends those that the connection has buffered.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Splits the connection, so that both directions are used at the same time.
    pub(super) fn into_split(self) -> (Reader, Writer) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
            Self::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
            Self::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (Box::new(reader), Box::new(writer))
            }
        }
    }
}

/// Enables keepalive, so that the loss of a host is noticed even while no request is in flight.
/// `TCP_USER_TIMEOUT` is not set: with it Linux would close a connection to a server whose kernel
/// acknowledges all data, but which does not read from its socket because its disk is slow.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_whether_the_other_host_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let place = Place::Tcp("127.0.0.1".to_owned(), address.port());
        let Socket::Tcp(stream) = connect(&place).await.unwrap() else { panic!("{place}") };
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE.0);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE.2);
    }
}
