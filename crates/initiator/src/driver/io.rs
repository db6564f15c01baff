//! What the driver needs of a network: connections, their bytes, and what the kernel tells of them.
//!
//! `tcp` is the kernel's, of Linux only. Behind these two traits the driver, and all that stands on it, runs over
//! any other just as well.
//!
//! Why it is so: `docs/design/layers.md`.

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

/// A result that comes later.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Where connections come from.
pub trait Network: fmt::Debug + Send + Sync {
    /// The addresses of a portal.
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>>;

    /// Opens a connection, prepared by what of the plan counts only before it is made.
    fn connect<'a>(&'a self, address: SocketAddr, plan: &'a Plan) -> Pending<'a, Box<dyn Socket>>;

    /// What this host permits.
    fn limits(&self) -> Limits;

    /// Fills a buffer with random bytes: those of the system, unless a simulation has its own.
    ///
    /// # Errors
    /// When there are none.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }

    /// The CmdSN, and the generation of task tags, that the next session begins with. A simulation has some that are about to
    /// wrap.
    fn first_numbers(&self) -> (u32, u32) {
        (1, 0)
    }
}

/// A connection: bytes in order, both ways. Dropped, it is closed in order.
pub trait Socket: Send + Sync {
    /// Ready when there is something to read, an end or an error included.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Ready when it takes bytes, or tells an error.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Reads what is there into the slices, in order; 0 is the end.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there.
    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// The same, whether or not readiness was told: what arrived together with the end of a
    /// connection may not have been told of yet.
    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes as much of the slices as it takes, in order; `has_more` says that a further write
    /// follows at once, so that no short segment need go out between the two.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing now.
    fn write(&self, slices: &[IoSlice<'_>], has_more: bool) -> io::Result<usize>;

    /// What the kernel tells of it (`TCP_INFO`).
    fn tcp_info(&self) -> io::Result<TcpInfo>;

    /// Sets a plan, and tells what was granted of it.
    fn apply(&self, plan: &Plan) -> Granted;

    /// Sends no faster than this, or as fast as it can; a network without a kernel leaves it.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    fn limit_pacing(&self, _rate: Option<Rate>) -> io::Result<()> {
        Ok(())
    }

    /// Is readable from now on only when so many bytes are there, or the end; a network without a kernel may leave it.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    fn set_receive_low_water(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// The interface that it leaves by.
    fn interface(&self) -> Option<Interface>;

    /// Drops what has not been sent at the close that follows, and resets the connection, so that
    /// nothing that is still buffered reaches the target.
    fn set_abortive(&self);
}
