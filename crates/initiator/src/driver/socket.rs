//! Sockets as the options and the plan want them before they are connected.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_tuner::Plan;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

use crate::options::socket::SocketOptions;

/// The interface for the next connection: each takes the one after the last.
static NEXT_INTERFACE: AtomicUsize = AtomicUsize::new(0);

/// Opens a connection to an address, under these options and what of the plan counts only
/// before the connection is made.
pub(crate) async fn connect(
    options: &SocketOptions,
    address: SocketAddr,
    plan: &Plan,
) -> io::Result<TcpStream> {
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

/// A peer that vanished must be noticed.
fn keep_alive(options: &SocketOptions, stream: &TcpStream) -> io::Result<()> {
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new()
        .with_time(options.keepalive_idle.max(second))
        .with_interval(options.keepalive_interval.max(second))
        .with_retries(options.keepalive_count.clamp(1, 127));
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    match options.user_timeout {
        Some(limit) => socket.set_tcp_user_timeout(Some(limit)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        iscsi_tuner::plan(&Default::default(), &Default::default(), &Default::default())
    }

    #[tokio::test]
    async fn the_kernel_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            keepalive_count: 9,
            user_timeout: Some(Duration::from_millis(2500)),
            ..SocketOptions::default()
        };
        let stream = connect(&options, listener.local_addr().unwrap(), &plan()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 9);
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(2500)));
    }

    #[tokio::test]
    async fn an_interface_that_is_not_there_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            interfaces: vec!["no-such-if0".to_owned()],
            ..SocketOptions::default()
        };
        assert!(connect(&options, listener.local_addr().unwrap(), &plan()).await.is_err());
    }
}
