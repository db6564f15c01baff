//! The socket of a connection.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use super::uri::Place;

/// Idle time before the first keepalive probe, interval of the probes, and number of unanswered probes after
/// which the connection ends: the same values as the initiator's.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(30), 3);

/// The receiving half of the socket.
#[derive(Debug)]
pub(super) enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// The sending half of the socket.
#[derive(Debug)]
pub(super) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

/// Connects to the address of a server.
pub(super) async fn connect(place: &Place) -> io::Result<(Reader, Writer)> {
    match place {
        Place::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            keep_alive(&stream)?;
            let (reader, writer) = stream.into_split();
            Ok((Reader::Tcp(reader), Writer::Tcp(writer)))
        }
        Place::Unix(path) => {
            let (reader, writer) = UnixStream::connect(path).await?.into_split();
            Ok((Reader::Unix(reader), Writer::Unix(writer)))
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

impl Reader {
    pub(super) async fn read_buf(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_buf(input).await,
            Self::Unix(stream) => stream.read_buf(input).await,
        }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    pub(super) fn try_read_buf(&self, input: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_buf(input),
            Self::Unix(stream) => stream.try_read_buf(input),
        }
    }
}

impl Writer {
    /// Writes some of the bytes, and returns how many: at least one.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes).await,
            Self::Unix(stream) => stream.write(bytes).await,
        }
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
        }
    }
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
        let (Reader::Tcp(reader), _) = connect(&place).await.unwrap() else { panic!("{place}") };
        let socket = SockRef::from(AsRef::<TcpStream>::as_ref(&reader));
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE.0);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE.2);
    }
}
