//! Tests of the whole initiator over a simulated network in virtual time, without sockets and without the
//! system's clock.
//!
//! Tests can hold connections up and cut them. Data that was sent over a connection before it was cut still
//! reaches the target after the connection is released, like data in the buffers of a real network.

mod callers;
mod flushes;
mod long_reads;
mod long_writes;
mod looks;
mod many_requests;
mod parts;
mod path_model;
mod path_mtu;
mod paths;
mod session_count;
mod settlement;
mod shaping;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use iscsi_pdu::{IscsiName, TargetAddress};
use iscsi_session::Timeouts;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::link::{Link, Properties};
use iscsi_testkit::target::{ConnId, Target};
use iscsi_tuner::{Granted, Interface, Limits, Plan, Rate, TcpInfo};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::handles::disk::open;
use crate::options::Options;
use crate::session::node::Node;
use crate::transport::{Network, Pending, Socket};
use crate::url::Url;
use crate::{Disk, Sessions};
use path_model::PathModel;

const TARGET: &str = "iqn.2026-01.org.example:disk";
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// The simulated network: portals, and the properties of the links to them.
#[derive(Clone)]
struct Simulated {
    portals: Arc<[Portal]>,
    properties: Properties,
}

/// A portal of a target: 192.0.2.1 is the first one, 192.0.2.2 the second.
struct Portal {
    target: Arc<Mutex<Target>>,
    /// The target that new connections lead to, if it differs from `target`.
    moved_to: Mutex<Option<Arc<Mutex<Target>>>>,
    is_refusing: AtomicBool,
    /// Whether attempts to connect to the portal neither succeed nor fail.
    is_dark: AtomicBool,
    /// Longest segments that arrive at the target, and at the initiator. `None` disables the [`PathModel`].
    path: Mutex<Option<[usize; 2]>>,
    connections: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

/// A connection to the target.
#[derive(Clone)]
struct Connection {
    wire: Arc<Mutex<Wire>>,
    /// Notified when there is something to carry.
    moved: Arc<Notify>,
}

struct Wire {
    link: Link,
    inbox: BytesMut,
    /// Number of bytes in `inbox` that make the socket readable.
    low_water: usize,
    /// Number of reads that returned bytes.
    reads: u32,
    /// Number of reads that found nothing.
    vain_reads: u32,
    /// Number of times that `TCP_INFO` was read.
    polls: u32,
    /// Round-trip time that `TCP_INFO` reports.
    round_trip: Duration,
    /// Delay of a queue before the link. `TCP_INFO` includes it in the smoothed round-trip time, not in the minimum.
    queue: Duration,
    /// Most bytes that one read returns; the socket reports the rest one turn later.
    max_read: Option<usize>,
    is_rest_unreported: bool,
    /// Number of writes.
    writes: u32,
    /// Most bytes of one write.
    longest_write: usize,
    /// All bytes that were written.
    sent: Vec<u8>,
    /// Whether data to the target is held up.
    is_held: bool,
    /// Whether the connection is closed at the initiator.
    is_closed: bool,
    reader: Option<Waker>,
    path: Option<PathModel>,
}

impl Simulated {
    fn new(portals: impl IntoIterator<Item = Arc<Mutex<Target>>>, properties: Properties) -> Self {
        let portal = |target| Portal {
            target,
            moved_to: Mutex::default(),
            is_refusing: AtomicBool::new(false),
            is_dark: AtomicBool::new(false),
            path: Mutex::default(),
            connections: Mutex::default(),
        };
        Self { portals: portals.into_iter().map(portal).collect(), properties }
    }
}

impl Portal {
    /// Sets whether new connections are refused.
    fn refuse(&self, is_refusing: bool) {
        self.is_refusing.store(is_refusing, Ordering::Relaxed);
    }

    /// Holds up the data that the portal's connections carry to the target.
    fn hold(&self) {
        self.change(|wire| wire.is_held = true);
    }

    /// Lets the data through that was held up.
    fn release(&self) {
        self.change(|wire| wire.is_held = false);
    }

    /// Drops all data that the portal's connections carry to the target from now on: nothing is acknowledged.
    fn swallow(&self) {
        self.change(|wire| wire.path = Some(PathModel::new([0, usize::MAX], None)));
    }

    /// Closes the portal's connections at the initiator.
    fn cut(&self) {
        self.change(|wire| wire.is_closed = true);
    }

    fn change(&self, mut change: impl FnMut(&mut Wire)) {
        for connection in lock(&self.connections).iter() {
            let mut wire = lock(&connection.wire);
            change(&mut wire);
            connection.moved.notify_one();
            if let Some(reader) = wire.reader.take() {
                reader.wake();
            }
        }
    }
}

impl Network for Simulated {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        Box::pin(async { Ok(vec![SocketAddr::new(portal.host.parse().unwrap(), portal.port)]) })
    }

    fn connect<'a>(
        &'a self,
        _: &'a TargetAddress,
        address: SocketAddr,
        plan: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        let number = (1..).zip(&*self.portals);
        let is_there = |(number, _): &(u8, _)| address.ip() == IpAddr::from([192, 0, 2, *number]);
        let (_, portal) = number.into_iter().find(is_there).unwrap();
        Box::pin(async move {
            tokio::time::sleep(ROUND_TRIP).await;
            if portal.is_dark.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if portal.is_refusing.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let wire = Arc::new(Mutex::new(Wire {
                link: Link::new(self.properties.clone()),
                inbox: BytesMut::new(),
                low_water: 1,
                reads: 0,
                vain_reads: 0,
                polls: 0,
                round_trip: ROUND_TRIP,
                queue: Duration::ZERO,
                max_read: None,
                is_rest_unreported: false,
                writes: 0,
                longest_write: 0,
                sent: Vec::new(),
                is_held: false,
                is_closed: false,
                reader: None,
                path: lock(&portal.path).map(|passing| PathModel::new(passing, plan.segment.value)),
            }));
            let moved = Arc::new(Notify::new());
            let moved_to = lock(&portal.moved_to).clone();
            let target = moved_to.unwrap_or_else(|| Arc::clone(&portal.target));
            let id = lock(&target).accept();
            tokio::spawn(carry(target, id, Arc::clone(&wire), Arc::clone(&moved)));
            let connection = Connection { wire, moved };
            lock(&portal.connections).push(connection.clone());
            Ok(Box::new(End(connection)) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// Opens a disk with one session over a link with these properties.
async fn disk_over(properties: Properties) -> (Simulated, Disk) {
    disk_of(TargetConfig::new(TARGET, RamDisk::new(512, 8192)), properties).await
}

/// Opens a disk with one session to a target with this configuration, over a link with these properties.
async fn disk_of(config: TargetConfig, properties: Properties) -> (Simulated, Disk) {
    let network = Simulated::new([Arc::new(Mutex::new(Target::new(config)))], properties);
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let mut options = Options { use_environment: false, ..Options::default() };
    options = options.with_sessions(Sessions::Fixed(1)).with_timeouts(
        Timeouts::default()
            .with_nop_interval(Some(Duration::from_secs(1)))
            .with_nop_response(Duration::from_secs(1)),
    );
    let node = Node::over(Arc::new(network.clone()), name, options).unwrap();
    let url = Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap();
    let disk = open::open(&node, url).await.unwrap();
    (network, disk)
}

/// Calls `see` with the first connection to the first portal.
fn see<R>(network: &Simulated, see: impl FnOnce(&mut Wire) -> R) -> R {
    let connections = lock(&network.portals[0].connections);
    see(&mut lock(&connections[0].wire))
}

/// Sets the round-trip time, and keeps the disk busy until the tuner has measured it: the tuner measures once a
/// second while there are requests.
async fn measure_round_trip(network: &Simulated, disk: &Disk, round_trip: Duration) {
    see(network, |wire| wire.round_trip = round_trip);
    for _ in 0..30 {
        disk.read_at(0, 4096).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Carries bytes between initiator and target until the connection is closed. Bytes that the initiator has sent
/// by then still reach the target.
async fn carry(target: Arc<Mutex<Target>>, id: ConnId, wire: Arc<Mutex<Wire>>, moved: Arc<Notify>) {
    loop {
        let next = {
            let (mut wire, mut target) = (lock(&wire), lock(&target));
            let now = Instant::now().into_std();
            target.advance(now);
            while !wire.is_held
                && !target.is_closed(id)
                && let Some(bytes) = wire.link.to_target.receive(now)
            {
                target.receive(id, &bytes);
            }
            let sent = std::iter::repeat_with(|| target.transmit(id));
            for bytes in sent.take_while(|bytes| !bytes.is_empty()) {
                let path = wire.path.as_mut();
                if path.is_none_or(|path| path.carries_to_initiator(bytes.len(), now)) {
                    wire.link.to_initiator.send(&bytes, now);
                }
            }
            while let Some(bytes) = wire.link.to_initiator.receive(now) {
                wire.inbox.extend_from_slice(&bytes);
            }
            let is_over = target.is_closed(id);
            wire.is_closed |= is_over;
            if let Some(reader) = wire.reader.take() {
                reader.wake();
            }
            let to_target = wire.link.to_target.next_arrival();
            if is_over || wire.is_closed && !wire.is_held && to_target.is_none() {
                return target.disconnected(id);
            }
            let to_initiator = wire.link.to_initiator.next_arrival();
            let arrivals = to_target.filter(|_| !wire.is_held).into_iter().chain(to_initiator);
            arrivals.chain(target.deadline(id)).min()
        };
        let arrival = async {
            match next {
                Some(next) => sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = arrival => {}
            () = moved.notified() => {}
        }
    }
}

/// The socket of a connection at the initiator.
struct End(Connection);

impl Socket for End {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut wire = lock(&self.0.wire);
        if std::mem::take(&mut wire.is_rest_unreported) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if wire.is_closed || wire.inbox.len() >= wire.low_water {
            return Poll::Ready(());
        }
        wire.reader = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = lock(&self.0.wire);
        if wire.inbox.is_empty() && !wire.is_closed {
            wire.vain_reads += 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.reads += 1;
        wire.is_rest_unreported = wire.max_read.is_some();
        let (mut count, most) = (0, wire.max_read.unwrap_or(usize::MAX));
        for slice in slices {
            let len = slice.len().min(wire.inbox.len()).min(most - count);
            wire.inbox.copy_to_slice(&mut slice[..len]);
            count += len;
        }
        Ok(count)
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read(slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<usize> {
        let (mut wire, now) = (lock(&self.0.wire), Instant::now().into_std());
        if wire.is_closed {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let count = slices.iter().map(|slice| slice.len()).sum();
        wire.writes += 1;
        wire.longest_write = wire.longest_write.max(count);
        slices.iter().for_each(|slice| wire.sent.extend_from_slice(slice));
        let path = wire.path.as_mut();
        if path.is_none_or(|path| path.carries_to_target(count, now)) {
            slices.iter().for_each(|slice| wire.link.to_target.send(slice, now));
        }
        self.0.moved.notify_one();
        Ok(count)
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        let (mut info, mut wire) = (TcpInfo::default(), lock(&self.0.wire));
        wire.polls += 1;
        info.smoothed_rtt = Some(wire.round_trip + wire.queue);
        info.min_rtt = Some(wire.round_trip);
        info.delivery_rate = (!wire.queue.is_zero()).then_some(Rate::GIGABIT);
        if let Some(path) = &wire.path {
            path.fill_info(&mut info, Instant::now().into_std());
        }
        Ok(info)
    }

    fn apply(&self, _: &Plan) -> Granted {
        Granted::default()
    }

    fn set_receive_low_water(&self, bytes: usize) -> io::Result<()> {
        lock(&self.0.wire).low_water = bytes;
        Ok(())
    }

    fn interface(&self) -> Option<Interface> {
        None
    }

    fn set_abortive(&self) {}
}

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.0.wire).is_closed = true;
        self.0.moved.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// Opens a disk, writes, reads and logs out in virtual time, and checks the exact number of round trips that
/// each takes.
#[tokio::test(start_paused = true)]
async fn a_disk_over_a_simulated_network_in_virtual_time() {
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    let target =
        Arc::new(Mutex::new(Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 8192)))));
    let network = Simulated::new([Arc::clone(&target)], properties);
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let options = Options { use_environment: false, ..Options::default() };
    let node = Node::over(Arc::new(network), name, options).unwrap();
    let url = Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap();
    let begun = Instant::now();
    let disk = open::open(&node, url).await.unwrap();
    assert_eq!(begun.elapsed(), 3 * ROUND_TRIP, "connect, log in, ask");
    let data = Bytes::from(vec![0x5a; 64 << 10]);
    let begun = Instant::now();
    disk.write_at(0, data.clone()).await.unwrap();
    assert_eq!(begun.elapsed(), ROUND_TRIP, "all of it is unsolicited");
    assert_eq!(disk.read_at(0, data.len()).await.unwrap(), data);
    disk.flush().await.unwrap();
    disk.logout().await.unwrap();
    assert!(lock(&target).violations().is_empty());
}
