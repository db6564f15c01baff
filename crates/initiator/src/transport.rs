//! Defines what a session needs of a network: connections, their bytes, and what is reported about them.
//!
//! An initiator uses the TCP of the kernel, unless [`Options::with_network`](crate::Options::with_network) names another
//! [`Network`]: a tunnel in this process (SSH, WireGuard), a local socket that another program forwards, vsock, or a simulated
//! network in virtual time. Everything above runs unchanged, and so does the tuner: it acts on the TCP below a transport, if the
//! transport passes on [`tcp_info`](Socket::tcp_info), [`apply`](Socket::apply) and
//! [`limit_pacing`](Socket::limit_pacing). A transport without a TCP of its own returns an error from `tcp_info`, and its
//! sessions run without measurements.
//!
//! | a transport | implements |
//! |---|---|
//! | other sockets than TCP | [`Network`] and [`Socket`], as the example `unix_socket` |
//! | encryption over any network | [`Tls`], whose [`Socket`] has the socket below in itself |
//!
//! # How a socket is used
//!
//! - One thread at a time calls the methods of a socket, but not always the same one. None may block.
//! - [`read`](Socket::read) is called until it returns `WouldBlock`, or fewer bytes than the slices have; then
//!   [`poll_readable`](Socket::poll_readable) is polled. It returns `Ready` as long as there is something, also what an earlier
//!   read has left in the transport, such as the decrypted rest of a record.
//! - [`read_unasked`](Socket::read_unasked) may be called on another thread while the task waits in `poll_readable`. A transport that
//!   keeps bytes or the end after that call must wake the task.
//! - [`write`](Socket::write) is called until everything is taken, or it returns `WouldBlock`; then
//!   [`poll_writable`](Socket::poll_writable) is polled before the next write.
//! - A write that was taken may still wait in the transport. While [`has_unsent`](Socket::has_unsent) says so, `poll_writable` is
//!   polled, which sends it, and nothing further is written. A layer must keep that as well towards the socket below it.
//! - An error of `write` means that nothing of its slices was taken, or that the connection is lost.
//!
//! Design: `docs/design/layers.md`.

#[cfg(target_os = "linux")]
pub(crate) mod tcp;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use iscsi_pdu::TargetAddress;

use crate::url::TlsOptions;
pub use iscsi_tuner::{Granted, Interface, Limits, Plan, Rate, TcpInfo};

/// The future of a network operation's result.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A source of connections: [`Options::with_network`](crate::Options::with_network).
pub trait Network: fmt::Debug + Send + Sync {
    /// Returns the addresses of a portal, in the order in which they are tried. A network that needs none makes one up. It stands
    /// in errors and in the list of sessions, and [`Redirects`](crate::Redirects) compares it: different hosts must have
    /// different addresses, or else [`Redirects::Never`](crate::Redirects::Never) must be set.
    ///
    /// # Errors
    /// If the name has no address, or the name service does not answer. The portal counts as unknown, unless the text of
    /// the error is that of EAI_AGAIN of getaddrinfo(3): then it is tried again.
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>>;

    /// Opens a connection to one of the addresses of a portal. The future is dropped when the time limit is over
    /// ([`SocketOptions::with_connect_timeout`](crate::SocketOptions::with_connect_timeout)).
    ///
    /// Sets the values of the plan that take effect only before connecting, such as the receive buffer. If the measured
    /// round-trip time asks for other ones, the connection is dropped and opened once more.
    ///
    /// # Errors
    /// If there is no connection. `ConnectionRefused` and `TimedOut` have errors of their own. After any error the next address is
    /// tried.
    fn connect<'a>(
        &'a self,
        portal: &'a TargetAddress,
        address: SocketAddr,
        plan: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>>;

    /// Returns the limits of this host, which bound the plan of each connection.
    fn limits(&self) -> Limits;

    /// Fills a buffer with random bytes of the system, for ISIDs and CHAP challenges. They must not be predictable, except
    /// in a simulation.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }

    /// Returns the CmdSN and the generation of task tags that the next session begins with. A simulation
    /// returns numbers that are about to wrap.
    #[doc(hidden)]
    fn first_numbers(&self) -> (u32, u32) {
        (1, 0)
    }
}

/// Encrypts connections: [`Options::with_tls`](crate::Options::with_tls).
///
/// An implementation must speak TLS 1.3, check the peer as [`TlsOptions`] says, and never go on in clear text. It must not
/// send early data (0-RTT), since an attacker who repeats them repeats a login.
pub trait Tls: fmt::Debug + Send + Sync {
    /// Encrypts a connection that is set up, before its first byte. Returns after the handshake, so that nothing is sent to a peer
    /// that is not known. The time limit to connect covers it; then the future is dropped.
    ///
    /// The socket below keeps its plan, its limits and its counters: the returned one passes them on.
    ///
    /// # Errors
    /// `InvalidData` or `PermissionDenied` if the peer does not prove what it must, or does not speak TLS: a disk or session is not
    /// opened then, and a lost session goes on to reconnect.
    /// `InvalidInput` if the options cannot be used, such as a file without a certificate. Any other error is one of the
    /// connection.
    fn secure<'a>(
        &'a self,
        socket: Box<dyn Socket>,
        portal: &'a TargetAddress,
        options: &'a TlsOptions,
    ) -> Pending<'a, Box<dyn Socket>>;
}

/// A connection that carries bytes in order, in both directions; the [module](self) says how it is used. Dropping it
/// closes the connection in order (FIN).
pub trait Socket: Send + Sync {
    /// Returns `Ready` while there is something to read: bytes, the end, or an error. Otherwise the task is woken when
    /// there is.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Returns `Ready` while the socket takes bytes, or has an error to report. Otherwise the task is woken when it does.
    /// First sends what still waits in the transport ([`has_unsent`](Self::has_unsent)).
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Reads the available bytes into the slices, in order; returns 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` when no bytes are available.
    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Reads like [`read`](Self::read), whether or not the socket was reported as readable: bytes that arrived
    /// together with the end of a connection may not have been reported yet.
    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes as much of the slices as the socket takes, in order. `has_more` says that another write follows
    /// immediately, so the socket may wait for it before it sends a short segment.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing.
    fn write(&self, slices: &[IoSlice<'_>], has_more: bool) -> io::Result<usize>;

    /// Returns whether bytes that [`write`](Self::write) has taken still wait in the transport, as encrypted records do
    /// that the socket below has not taken yet.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Returns what the kernel reports about the connection (`TCP_INFO`).
    ///
    /// # Errors
    /// If nothing is known of it. The session then runs without measurements.
    fn tcp_info(&self) -> io::Result<TcpInfo>;

    /// Sets a plan on the socket, and returns the values that the kernel granted.
    fn apply(&self, plan: &Plan) -> Granted;

    /// Limits the rate at which the socket sends; `None` lifts the limit. A network without a kernel ignores the
    /// limit.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    fn limit_pacing(&self, _rate: Option<Rate>) -> io::Result<()> {
        Ok(())
    }

    /// Sets how many bytes make the socket readable; the end of the connection always does.
    ///
    /// # Errors
    /// `Unsupported` if each byte makes it readable, which is the default; otherwise those of `setsockopt(2)`. After an error
    /// the method is not called again.
    fn set_receive_low_water(&self, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the network interface that the connection uses.
    fn interface(&self) -> Option<Interface>;

    /// Makes the next close abortive: it drops unsent data and resets the connection, so that nothing that is
    /// still buffered reaches the target.
    fn set_abortive(&self);
}
