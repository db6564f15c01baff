//! Defines what the driver needs of a network: connections, their bytes, and what the kernel reports about them.
//!
//! `tcp` implements the traits with the kernel's TCP, on Linux only. Over another implementation of [`Network`]
//! and [`Socket`], the driver and everything above it runs unchanged, for example in a simulation.
//!
//! Design: `docs/design/layers.md`.

#![cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "the feature lets others name them")
)]

#[cfg(target_os = "linux")]
pub(crate) mod tcp;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use iscsi_pdu::TargetAddress;
use iscsi_tuner::{Granted, Interface, Limits, Plan, Rate, TcpInfo};

/// The future of a network operation's result.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A source of connections.
pub trait Network: fmt::Debug + Send + Sync {
    /// Returns the addresses of a portal.
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>>;

    /// Opens a connection. Sets the values of the plan that take effect only before connecting.
    fn connect<'a>(&'a self, address: SocketAddr, plan: &'a Plan) -> Pending<'a, Box<dyn Socket>>;

    /// Returns the limits of this host.
    fn limits(&self) -> Limits;

    /// Fills a buffer with random bytes of the system; a simulation overrides this.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }

    /// Returns the CmdSN and the generation of task tags that the next session begins with. A simulation
    /// returns numbers that are about to wrap.
    fn first_numbers(&self) -> (u32, u32) {
        (1, 0)
    }
}

/// A connection that carries bytes in order, in both directions. Dropping it closes the connection in order
/// (FIN).
pub trait Socket: Send + Sync {
    /// Returns `Ready` when there is something to read: bytes, the end, or an error.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Returns `Ready` when the socket takes bytes, or has an error to report.
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

    /// Returns what the kernel reports about the connection (`TCP_INFO`).
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

    /// Sets how many bytes make the socket readable; the end of the connection always does. A network without a
    /// kernel may ignore the number.
    ///
    /// # Errors
    /// Those of `setsockopt(2)`.
    fn set_receive_low_water(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// Returns the network interface that the connection uses.
    fn interface(&self) -> Option<Interface>;

    /// Makes the next close abortive: it drops unsent data and resets the connection, so that nothing that is
    /// still buffered reaches the target.
    fn set_abortive(&self);
}
