//! Implements [`Network`] and [`Socket`] with the kernel's TCP.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use iscsi_tuner::{Granted, Interface, Limits, Plan, Rate, TcpInfo};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::options::socket::SocketOptions;
use crate::transport::{Network, Pending, Socket};

/// Counter that gives each connection the next interface in turn.
static NEXT_INTERFACE: AtomicUsize = AtomicUsize::new(0);

/// Longest time of keep-alives that the kernel accepts (`MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPINTVL`).
const MAX_KEEPALIVE: Duration = Duration::from_secs(32_767);
/// Longest `TCP_USER_TIMEOUT`: the kernel counts milliseconds in an `int`.
const MAX_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// The network of the kernel's TCP, with these socket options.
#[derive(Clone, Debug)]
pub(crate) struct Tcp(pub(crate) SocketOptions);

impl Network for Tcp {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        // The lookup is asynchronous, so it does not block the runtime.
        let lookup = lookup_host((portal.host.as_str(), portal.port));
        Box::pin(async { Ok(lookup.await?.collect()) })
    }

    fn connect<'a>(
        &'a self,
        _: &'a TargetAddress,
        address: SocketAddr,
        plan: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        Box::pin(async move {
            let stream = open(&self.0, address, plan).await?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::read()
    }
}

impl Socket for TcpStream {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        // An error is dropped here, because a later read or write returns it again.
        self.poll_read_ready(context).map(drop)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_write_ready(context).map(drop)
    }

    /// Reads into the slices. A read that does not fill the slices has emptied the socket. This is reported to
    /// the runtime as `WouldBlock`, which saves a further read.
    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut count = None;
        let result = self.try_io(Interest::READABLE, || {
            let read = receive(self, slices)?;
            count = Some(read);
            if read < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
        });
        count.map_or(result, Ok)
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        receive(self, slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], has_more: bool) -> io::Result<usize> {
        match slices {
            _ if has_more => {}
            [only] => return self.try_write(only),
            several => return self.try_write_vectored(several),
        }
        self.try_io(Interest::WRITABLE, || iscsi_tuner::send_with_more_to_come(self, slices))
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        TcpInfo::read(self)
    }

    fn apply(&self, plan: &Plan) -> Granted {
        plan.apply(self)
    }

    fn limit_pacing(&self, rate: Option<Rate>) -> io::Result<()> {
        iscsi_tuner::limit_pacing(self, rate)
    }

    fn set_receive_low_water(&self, bytes: usize) -> io::Result<()> {
        iscsi_tuner::set_receive_low_water(self, bytes)
    }

    fn interface(&self) -> Option<Interface> {
        self.local_addr().ok().and_then(|address| Interface::with_address(address.ip()))
    }

    fn set_abortive(&self) {
        if let Err(error) = SockRef::from(self).set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "the connection cannot be reset");
        }
    }
}

/// Reads the available bytes. For one slice it uses recv(2), which costs less than recvmsg(2)
/// (docs/design/hot-path.md). While no data segment is to be filled, the first of two slices is empty and is
/// left out.
fn receive(stream: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let slices = match slices {
        [first, rest @ ..] if first.is_empty() => rest,
        all => all,
    };
    let mut socket = &*SockRef::from(stream);
    if let [only] = slices { socket.read(only) } else { socket.read_vectored(slices) }
}

/// Opens a connection to an address, with these socket options, and with the values of the plan that take effect
/// only before connecting.
async fn open(options: &SocketOptions, address: SocketAddr, plan: &Plan) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    bind(options, &socket)?;
    for refusal in plan.prepare(&socket) {
        tracing::warn!(option = refusal.option, reason = %refusal.reason, "not granted");
    }
    let stream = socket.connect(address).await?;
    keep_alive(options, &stream)?;
    Ok(stream)
}

fn bind(options: &SocketOptions, socket: &TcpSocket) -> io::Result<()> {
    if options.interfaces.is_empty() {
        return Ok(());
    }
    let turn = NEXT_INTERFACE.fetch_add(1, Ordering::Relaxed) % options.interfaces.len();
    let name = options.interfaces.get(turn).map(String::as_bytes);
    SockRef::from(socket).bind_device(name)
}

/// Sets keep-alives and time limits, so that a peer that vanished is noticed.
fn keep_alive(options: &SocketOptions, stream: &TcpStream) -> io::Result<()> {
    let in_range = |time: Duration| time.clamp(Duration::from_secs(1), MAX_KEEPALIVE);
    let keepalive = TcpKeepalive::new()
        .with_time(in_range(options.keepalive_idle))
        .with_interval(in_range(options.keepalive_interval))
        .with_retries(options.keepalive_count.clamp(1, 127));
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    match options.user_timeout {
        Some(limit) => socket.set_tcp_user_timeout(Some(limit.min(MAX_USER_TIMEOUT))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        iscsi_tuner::plan(&Default::default(), &Default::default(), &Default::default())
    }

    /// Opening a connection sets keepalive and the time limit on the socket.
    #[tokio::test]
    async fn the_kernel_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            keepalive_count: 9,
            user_timeout: Some(Duration::from_millis(2500)),
            ..SocketOptions::default()
        };
        let stream = open(&options, listener.local_addr().unwrap(), &plan()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 9);
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(2500)));
    }

    #[tokio::test]
    async fn times_beyond_the_kernels_count_as_its_longest() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            keepalive_idle: Duration::MAX,
            keepalive_interval: Duration::from_secs(32_768),
            user_timeout: Some(Duration::MAX),
            ..SocketOptions::default()
        };
        let stream = open(&options, listener.local_addr().unwrap(), &plan()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_keepalive_time().unwrap(), MAX_KEEPALIVE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), MAX_KEEPALIVE);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(MAX_USER_TIMEOUT));
    }

    /// Below its low-water mark a socket is not readable, but a read returns the bytes that are there.
    #[tokio::test]
    async fn only_so_many_bytes_are_told_of() {
        use std::io::Write;

        let is_readable = async |stream: &TcpStream| {
            let mut polls = tokio::time::interval(Duration::from_millis(1));
            for _ in 0..50 {
                polls.tick().await;
                let ready =
                    std::future::poll_fn(|context| Poll::Ready(stream.poll_readable(context)));
                if ready.await.is_ready() {
                    return true;
                }
            }
            false
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let options = SocketOptions::default();
        let stream = open(&options, listener.local_addr().unwrap(), &plan()).await.unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.set_receive_low_water(1000).unwrap();
        peer.write_all(&[7; 999]).unwrap();
        assert!(!is_readable(&stream).await);
        let mut buffer = [0; 500];
        let some = |buffer: &mut [u8]| stream.read_unasked(&mut [IoSliceMut::new(buffer)]);
        assert_eq!(some(&mut buffer).unwrap(), 500, "they are there for whoever asks");
        peer.write_all(&[7; 501]).unwrap();
        assert!(is_readable(&stream).await);
        stream.set_receive_low_water(2000).unwrap();
        assert_eq!(stream.read(&mut [IoSliceMut::new(&mut [0; 2000])]).unwrap(), 1000);
        peer.write_all(&[7; 999]).unwrap();
        assert!(!is_readable(&stream).await);
        stream.set_receive_low_water(1).unwrap();
        assert!(is_readable(&stream).await, "they are told of when less is asked for");
    }

    #[tokio::test]
    async fn an_interface_that_is_not_there_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            interfaces: vec!["no-such-if0".to_owned()],
            ..SocketOptions::default()
        };
        assert!(open(&options, listener.local_addr().unwrap(), &plan()).await.is_err());
    }
}
