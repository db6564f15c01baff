//! TCP connections to portals.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use iscsi_tuner::Tuning;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::driver::measure::tuner::Tuner;
use crate::driver::socket;
use crate::error::ConnectError;
use crate::options::socket::SocketOptions;
use crate::url::portal_name;

/// A connection, and the tuner that has set it up.
pub(crate) type Connected = (TcpStream, Tuner);

/// A connection that is being opened.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Connected, ConnectError>> + Send>>;

/// How connections are opened.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// How long one may take to come about, over all addresses of its portal.
    pub(crate) limit: Duration,
    pub(crate) socket: SocketOptions,
    pub(crate) tuning: Tuning,
}

impl Connector {
    /// Opens a connection to a portal: its addresses are tried one after the other, and each gets an
    /// equal share of the time that is left.
    pub(crate) fn open(&self, portal: TargetAddress) -> Opening {
        Box::pin(self.clone().connect(portal))
    }

    async fn connect(self, portal: TargetAddress) -> Result<Connected, ConnectError> {
        let deadline = Instant::now() + self.limit;
        let addresses = resolve(&portal, deadline).await?;
        let mut last = None;
        for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(Instant::now()) / left;
            match self.connect_to(*address, Instant::now() + share).await {
                Ok(connected) => return Ok(connected),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ConnectError::TimedOut { portal: portal_name(&portal) }))
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<Connected, ConnectError> {
        let timed_out = || ConnectError::TimedOut { portal: address.to_string() };
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                ConnectError::Refused { address }
            } else if error.kind() == io::ErrorKind::TimedOut {
                timed_out()
            } else {
                ConnectError::Failed { address, reason: error.to_string() }
            }
        };
        match timeout_at(deadline, self.set_up(address)).await {
            Ok(result) => result.map_err(failed),
            Err(_) => Err(timed_out()),
        }
    }

    /// Opens a connection and sets it up as the tuner plans. If the round-trip time asks for what
    /// counts only before a connection is made, it is made anew.
    async fn set_up(&self, address: SocketAddr) -> io::Result<Connected> {
        let mut tuner = Tuner::new(self.tuning.clone());
        let mut stream = socket::connect(&self.socket, address, tuner.plan()).await?;
        if tuner.connected(&stream) {
            drop(stream);
            stream = socket::connect(&self.socket, address, tuner.plan()).await?;
        }
        tuner.apply(&stream);
        Ok((stream, tuner))
    }
}

/// The addresses of a portal, without blocking the runtime.
async fn resolve(
    portal: &TargetAddress,
    deadline: Instant,
) -> Result<Vec<SocketAddr>, ConnectError> {
    let unknown = |reason| ConnectError::HostUnknown { host: portal.host.clone(), reason };
    let lookup = lookup_host((portal.host.as_str(), portal.port));
    match timeout_at(deadline, lookup).await {
        Ok(Ok(addresses)) => {
            let addresses: Vec<_> = addresses.collect();
            if addresses.is_empty() { Err(unknown("no address".to_owned())) } else { Ok(addresses) }
        }
        Ok(Err(error)) => Err(unknown(error.to_string())),
        Err(_) => Err(unknown("the name service does not answer".to_owned())),
    }
}

/// Writes the slices, in order; `has_more` says that a further write follows at once, so that no
/// short segment need go out between the two.
pub(crate) fn write(
    stream: &TcpStream,
    slices: &[IoSlice<'_>],
    has_more: bool,
) -> io::Result<usize> {
    if !has_more {
        return stream.try_write_vectored(slices);
    }
    stream.try_io(Interest::WRITABLE, || iscsi_tuner::send_with_more_to_come(stream, slices))
}

/// Reads what is there into the slices, in order.
///
/// A read that does not fill them has emptied the socket; the runtime is told so, which saves the
/// system call that would find out.
pub(crate) fn read(stream: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let room: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut count = None;
    let result = stream.try_io(Interest::READABLE, || {
        let read = (&*SockRef::from(stream)).read_vectored(slices)?;
        count = Some(read);
        if read < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
    });
    count.map_or(result, Ok)
}

/// The same, whether or not the runtime knows of anything to read: what arrived together with the end
/// of a connection it may not have been told of yet.
pub(crate) fn read_unasked(stream: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    (&*SockRef::from(stream)).read_vectored(slices)
}

/// Closes a connection. An abortive close resets it, so that nothing that is still buffered
/// reaches the target.
pub(crate) fn close(stream: TcpStream, abortive: bool) {
    if abortive && let Err(error) = SockRef::from(&stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "the connection cannot be reset");
    }
    drop(stream);
}
