//! The network that the initiator sees: its connections lead to the test target over simulated wires, which decide
//! when bytes arrive (`wire.rs`).

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use iscsi_initiator::TargetAddress;
use iscsi_initiator::transport::{Network, Pending, Socket};
use iscsi_tuner::{Granted, Interface, Limits, Plan, TcpInfo};
use tokio::time::sleep;

use crate::clock;
use crate::rng::Rng;
use crate::settings::Class;
use crate::tunnel::piece_len;
use crate::world::{Reachability, Shared};

/// Timeout of a connection attempt to a portal that does not respond, as in the Linux kernel.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);
/// Largest number of bytes that arrive together.
const SEGMENT: usize = 16 << 10;

/// Number of uses of each tag slot before the tags repeat.
const TAG_GENERATIONS: u64 = 262_143;

/// The simulated network of one process. Once the process has ended, the network neither carries data nor
/// accepts connections, so the further actions of the initiator cannot be observed.
#[derive(Clone)]
pub(crate) struct SimulatedNetwork {
    pub(crate) shared: Arc<Shared>,
    pub(crate) process: u64,
}

impl SimulatedNetwork {
    /// Returns immediately if the process runs, and never if it has ended.
    async fn alive(&self) {
        let has_ended = self.shared.lock().has_ended(self.process);
        if has_ended {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedNetwork")
    }
}

/// Returns the address of a portal.
pub(crate) fn address(portal: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(portal + 1).unwrap_or(u8::MAX)], 3260))
}

/// Returns the number of portals in a URL.
pub(crate) fn portals_of(url: &str) -> usize {
    url.matches("10.0.0.").count()
}

fn portal_of(address: SocketAddr) -> usize {
    let SocketAddr::V4(address) = address else { return 0 };
    usize::from(address.ip().octets()[3]).saturating_sub(1)
}

impl Network for SimulatedNetwork {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        Box::pin(async move {
            let address = portal.to_string();
            let address = address.split(',').next().unwrap_or_default();
            let socket = address.parse().or_else(|_| format!("{address}:3260").parse());
            Ok(vec![socket.map_err(io::Error::other)?])
        })
    }

    fn connect<'a>(
        &'a self,
        _: &'a TargetAddress,
        address: SocketAddr,
        _: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        Box::pin(async move {
            self.alive().await;
            let portal = portal_of(address);
            let (reachability, round_trip) = {
                let mut world = self.shared.lock();
                world.trace.record("connect", &[portal as u64]);
                let reachability = world.reachability(portal);
                if reachability != Reachability::Open {
                    world.counts.fault(Class::Refuse);
                }
                (reachability, world.shape.latency * 2)
            };
            match reachability {
                Reachability::Open => sleep(round_trip).await,
                Reachability::Refuses => {
                    sleep(round_trip).await;
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Reachability::Dark => {
                    sleep(CONNECT_TIMEOUT).await;
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            self.alive().await;
            let number = self.shared.lock().accept(self.process, portal);
            let (shared, process) = (Arc::clone(&self.shared), self.process);
            Ok(Box::new(Connection { shared, process, number }) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn first_numbers(&self) -> (u32, u32) {
        let numbers = &mut self.shared.lock().numbers;
        if numbers.percent(50) {
            return (1, 0);
        }
        let before_end = |end: u64, most: u64, rng: &mut Rng| {
            u32::try_from(end - rng.within(0..most)).unwrap_or(u32::MAX)
        };
        let cmd_sn = before_end(u32::MAX.into(), 200, numbers);
        (cmd_sn, before_end(TAG_GENERATIONS - 1, 8, numbers))
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut world = self.shared.lock();
        bytes.chunks_mut(8).for_each(|chunk| {
            let word = world.entropy.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        });
        Ok(())
    }
}

/// The initiator's end of a wire.
struct Connection {
    shared: Arc<Shared>,
    process: u64,
    number: u64,
}

impl Socket for Connection {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut world = self.shared.lock();
        if world.has_ended(self.process) {
            return Poll::Pending;
        }
        let Some(wire) = world.wire(self.number) else { return Poll::Ready(()) };
        if wire.is_readable() {
            return Poll::Ready(());
        }
        wire.reader = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut world = self.shared.lock();
        let shape = world.shape;
        if world.has_ended(self.process) {
            return Poll::Pending;
        }
        let Some(wire) = world.wire(self.number) else { return Poll::Ready(()) };
        if wire.is_reset || wire.room(&shape) > 0 {
            return Poll::Ready(());
        }
        wire.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut world = self.shared.lock();
        if world.has_ended(self.process) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wire = world.wire(self.number).ok_or(io::ErrorKind::NotConnected)?;
        if wire.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if wire.inbox.is_empty() && !wire.is_at_end {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = 0;
        for slice in slices {
            let len = slice.len().min(wire.inbox.len());
            wire.inbox.copy_to_slice(&mut slice[..len]);
            count += len;
        }
        Ok(count)
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read(slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<usize> {
        let mut world = self.shared.lock();
        let world = &mut *world;
        let shape = world.shape;
        if world.has_ended(self.process) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wire = world.wires.get_mut(&self.number).ok_or(io::ErrorKind::NotConnected)?;
        if wire.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut room = wire.room(&shape);
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut count = 0;
        for slice in slices {
            let part = &slice[..slice.len().min(room)];
            let mut rest = part;
            while !rest.is_empty() {
                let is_encrypted = wire.tunnel.is_some();
                let len = if is_encrypted { piece_len(&mut world.chance) } else { SEGMENT };
                let (segment, behind) = rest.split_at(len.min(rest.len()));
                wire.to_target.send(Bytes::copy_from_slice(segment), &shape, &mut world.chance);
                rest = behind;
            }
            (room, count) = (room - part.len(), count + part.len());
        }
        self.shared.moved.notify_one();
        Ok(count)
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        let mut world = self.shared.lock();
        let shape = world.shape;
        let round_trip = shape.latency * 2;
        let mut info = TcpInfo::default();
        (info.smoothed_rtt, info.min_rtt) = (Some(round_trip), Some(round_trip));
        let wire = world.wire(self.number);
        let is_acknowledged = wire.map(|wire| wire.is_all_acknowledged(clock::now(), &shape));
        info.segments_in_flight =
            is_acknowledged.map(|is_acknowledged| u32::from(!is_acknowledged));
        Ok(info)
    }

    fn apply(&self, _: &Plan) -> Granted {
        Granted::default()
    }

    fn set_receive_low_water(&self, bytes: usize) -> io::Result<()> {
        let mut world = self.shared.lock();
        if let Some(wire) = world.wire(self.number) {
            wire.low_water = bytes;
        }
        Ok(())
    }

    fn interface(&self) -> Option<Interface> {
        None
    }

    fn set_abortive(&self) {
        if let Some(wire) = self.shared.lock().wire(self.number) {
            wire.is_abortive = true;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.lock().close(self.number);
        self.shared.moved.notify_one();
    }
}
