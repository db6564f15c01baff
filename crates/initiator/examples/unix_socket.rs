//! Reads the first bytes of a disk over a Unix socket, as SSH forwards one: no port of this host is open to other users.
//!
//! ```text
//! ssh -N -L /run/user/1000/san.sock:10.0.0.5:3260 gateway &
//! cargo run -p iscsi-initiator --example unix_socket -- /run/user/1000/san.sock iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0
//! ```
//!
//! Anything that carries bytes in order can be a network in this way. The kernel reports nothing of the link behind a Unix socket,
//! so that the sessions run without measurements.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what the program is for")]

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};

use iscsi_initiator::transport::{
    Granted, Interface, Limits, Network, Pending, Plan, Socket, TcpInfo,
};
use iscsi_initiator::{Error, Initiator, Options, Redirects, TargetAddress};
use tokio::net::UnixStream;

/// A network with one place: each connection leads there, whatever the portal is.
#[derive(Debug)]
struct UnixSocket(PathBuf);

impl Network for UnixSocket {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        // No name service of this host is asked: the other end of the tunnel knows the portal.
        let address = portal.host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Box::pin(async move { Ok(vec![SocketAddr::new(address, portal.port)]) })
    }

    fn connect<'a>(
        &'a self,
        _: &'a TargetAddress,
        _: SocketAddr,
        _: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        Box::pin(async move {
            let stream = UnixStream::connect(&self.0).await?;
            Ok(Box::new(Connection(stream)) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

struct Connection(UnixStream);

impl Socket for Connection {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        // A later read or write returns the error.
        self.0.poll_read_ready(context).map(drop)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_write_ready(context).map(drop)
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.try_read_vectored(slices)
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.try_read_vectored(slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], _has_more: bool) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn apply(&self, _: &Plan) -> Granted {
        Granted::default()
    }

    fn interface(&self) -> Option<Interface> {
        None
    }

    fn set_abortive(&self) {
        // The close of a Unix socket discards what it has not delivered.
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Vec::from_iter(std::env::args().skip(1));
    let [socket, url] = &*arguments else {
        eprintln!("usage: unix_socket SOCKET iscsi://HOST/TARGET/LUN");
        return ExitCode::from(2);
    };
    match read(PathBuf::from(socket), url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn read(socket: PathBuf, url: &str) -> Result<(), Error> {
    // All portals have one address here, so a redirection cannot be judged by it.
    let options = Options::default().with_redirects(Redirects::Never);
    let options = options.with_network(Arc::new(UnixSocket(socket)));
    let disk = Initiator::with_default_name(options)?.disk(url).await?;
    println!("{} bytes in blocks of {}", disk.capacity(), disk.block_size());
    let start = disk.read_at(0, 16).await?;
    println!("they begin with {start:02x?}");
    disk.logout().await
}
