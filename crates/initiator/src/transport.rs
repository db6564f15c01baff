//! Defines what a session needs of a network: connections, their bytes, and what is known about them.
//!
//! An initiator uses the TCP of the kernel. With [`Options::with_network`](crate::Options::with_network) it uses another [`Network`]: a
//! tunnel in this process (SSH, WireGuard), a Unix socket that another program forwards, vsock, or a simulated network in virtual
//! time.
//!
//! | to bring | implement |
//! |---|---|
//! | connections other than TCP | [`Network`] and [`Socket`], as the example `unix_socket` does |
//! | encryption of any connection | [`Tls`], with a [`Socket`] that contains the socket below |
//!
//! The tuner measures and sets the TCP below a transport if its [`Socket`] forwards [`tcp_info`](Socket::tcp_info),
//! [`apply`](Socket::apply) and [`limit_pacing`](Socket::limit_pacing). If `tcp_info` returns an error, the session runs without
//! measurements.
//!
//! # How a socket is used
//!
//! - The methods are called by one thread at a time, not always the same. No method may block.
//! - [`read`](Socket::read) is called until it returns `WouldBlock`, or fewer bytes than the slices have. Then
//!   [`poll_readable`](Socket::poll_readable) is polled. It must return `Ready` while there is something to read, including bytes that
//!   the socket itself holds, such as the rest of a decrypted record.
//! - [`read_unasked`](Socket::read_unasked) may be called while the task waits in `poll_readable`. If the socket then holds bytes, the
//!   end or an error, it must wake the task.
//! - [`write`](Socket::write) is called until all bytes are taken, or it returns `WouldBlock`. Then
//!   [`poll_writable`](Socket::poll_writable) is polled before the next write. If `write` returns another error, the connection is
//!   lost.
//! - A socket may hold bytes that a write has taken. While [`has_unsent`](Socket::has_unsent) returns true, `poll_writable` is polled,
//!   which must send them, and `write` is not called. A socket must use the socket below it in the same way.
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
pub use iscsi_tuner::{Granted, Interface, Limits, Plan, Rate, TcpInfo};

use crate::url::TlsOptions;

/// The future of a network operation's result.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A source of connections: [`Options::with_network`](crate::Options::with_network).
pub trait Network: fmt::Debug + Send + Sync {
    /// Returns the addresses of a portal, in the order in which to try them. A network without addresses returns a made-up one,
    /// which errors and statistics show. [`Redirects`](crate::Redirects) compares addresses: if two hosts have the same, set
    /// [`Redirects::Never`](crate::Redirects::Never).
    ///
    /// # Errors
    /// If the name has no address, or the name service does not answer. Only if the text of the error is that of EAI_AGAIN of
    /// getaddrinfo(3), the error is transient.
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>>;

    /// Opens a connection to one of the addresses of a portal. The future is dropped when the time limit is over
    /// ([`SocketOptions::with_connect_timeout`](crate::SocketOptions::with_connect_timeout)).
    ///
    /// Sets the values of the plan that take effect only before connecting, such as the receive buffer. If the plan for the
    /// measured round-trip time has another value, the connection is dropped and opened again.
    ///
    /// # Errors
    /// If the connection cannot be opened. The next address is tried then.
    fn connect<'a>(
        &'a self,
        portal: &'a TargetAddress,
        address: SocketAddr,
        plan: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>>;

    /// Returns the limits of this host, which bound the plan of each connection.
    fn limits(&self) -> Limits;

    /// Fills a buffer with random bytes, for ISIDs and CHAP challenges. Except in a simulation, they must not be predictable.
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
/// An implementation must speak TLS 1.3, check the peer by the [`TlsOptions`], and never continue in clear text. It must not send
/// early data (0-RTT), because an attacker who repeats them repeats a login.
pub trait Tls: fmt::Debug + Send + Sync {
    /// Encrypts an open connection over which no byte has been sent. Returns after the handshake, when the peer is known. The
    /// future is dropped when the time limit to connect is over.
    ///
    /// The returned socket must forward `tcp_info`, `apply` and `limit_pacing` to the socket below.
    ///
    /// # Errors
    /// - `InvalidData` or `PermissionDenied` if the peer is not trusted, or does not speak TLS. Such an error is not transient.
    /// - `InvalidInput` if the options cannot be used, for example a file without a certificate.
    /// - Any other kind if the connection fails.
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

    /// Sends the bytes that the socket holds ([`has_unsent`](Self::has_unsent)). Returns `Ready` while the socket takes further bytes,
    /// or has an error to report. Otherwise the task is woken when it does.
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

    /// Returns whether the socket holds bytes that [`write`](Self::write) has taken, for example encrypted records that the socket below
    /// has not taken yet.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Returns what the kernel reports about the connection (`TCP_INFO`).
    ///
    /// # Errors
    /// If nothing is known about it. The session then runs without measurements.
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

    /// Returns the name of the cipher that encrypts the connection, for reports; `None` in clear text.
    fn encryption(&self) -> Option<String> {
        None
    }

    /// Returns the network interface that the connection uses.
    fn interface(&self) -> Option<Interface>;

    /// Makes the next close abortive: it drops unsent data and resets the connection, so that nothing that is
    /// still buffered reaches the target.
    fn set_abortive(&self);
}
