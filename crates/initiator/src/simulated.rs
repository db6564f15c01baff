//! The whole of the initiator over a simulated network, in virtual time: no socket, no clock.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use iscsi_pdu::{IscsiName, TargetAddress};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::link::{Link, Properties};
use iscsi_testkit::target::{ConnId, Target};
use iscsi_tuner::{Granted, Interface, Limits, Plan, TcpInfo};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::driver::io::{Network, Pending, Socket};
use crate::handles::disk::open;
use crate::options::Options;
use crate::session::node::Node;
use crate::url::Url;

const TARGET: &str = "iqn.2026-01.org.example:disk";
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// A target at the end of links of these properties.
#[derive(Clone)]
struct Simulated {
    target: Arc<Mutex<Target>>,
    properties: Properties,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

/// A connection to the target.
struct Connection {
    wire: Arc<Mutex<Wire>>,
    /// There is something to carry.
    moved: Arc<Notify>,
}

struct Wire {
    link: Link,
    inbox: BytesMut,
    is_closed: bool,
    reader: Option<Waker>,
}

impl Network for Simulated {
    fn resolve<'a>(&'a self, _: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        Box::pin(async { Ok(vec![SocketAddr::from(([192, 0, 2, 1], 3260))]) })
    }

    fn connect<'a>(&'a self, _: SocketAddr, _: &'a Plan) -> Pending<'a, Box<dyn Socket>> {
        Box::pin(async move {
            tokio::time::sleep(ROUND_TRIP).await;
            let wire = Arc::new(Mutex::new(Wire {
                link: Link::new(self.properties.clone()),
                inbox: BytesMut::new(),
                is_closed: false,
                reader: None,
            }));
            let moved = Arc::new(Notify::new());
            let id = lock(&self.target).accept();
            tokio::spawn(carry(self.clone(), id, Arc::clone(&wire), Arc::clone(&moved)));
            Ok(Box::new(Connection { wire, moved }) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// Carries bytes between both ends until the connection is closed.
async fn carry(network: Simulated, id: ConnId, wire: Arc<Mutex<Wire>>, moved: Arc<Notify>) {
    loop {
        let next = {
            let (mut wire, mut target) = (lock(&wire), lock(&network.target));
            let now = Instant::now().into_std();
            target.advance(now);
            while let Some(bytes) = wire.link.to_target.receive(now) {
                target.receive(id, &bytes);
            }
            wire.link.to_initiator.send(&target.transmit(id), now);
            while let Some(bytes) = wire.link.to_initiator.receive(now) {
                wire.inbox.extend_from_slice(&bytes);
            }
            wire.is_closed |= target.is_closed(id);
            if let Some(reader) = wire.reader.take() {
                reader.wake();
            }
            if wire.is_closed {
                return target.disconnected(id);
            }
            wire.link.next_arrival().into_iter().chain(target.deadline(id)).min()
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

impl Socket for Connection {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut wire = lock(&self.wire);
        if wire.is_closed || !wire.inbox.is_empty() {
            return Poll::Ready(());
        }
        wire.reader = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = lock(&self.wire);
        if wire.inbox.is_empty() && !wire.is_closed {
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
        let (mut wire, now) = (lock(&self.wire), Instant::now().into_std());
        slices.iter().for_each(|slice| wire.link.to_target.send(slice, now));
        self.moved.notify_one();
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        let mut info = TcpInfo::default();
        (info.smoothed_rtt, info.min_rtt) = (Some(ROUND_TRIP), Some(ROUND_TRIP));
        Ok(info)
    }

    fn apply(&self, _: &Plan) -> Granted {
        Granted::default()
    }

    fn interface(&self) -> Option<Interface> {
        None
    }

    fn set_abortive(&self) {}
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.wire).is_closed = true;
        self.moved.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// From the login to the logout, by the runtime's clock: what the round trips cost is known exactly.
#[tokio::test(start_paused = true)]
async fn a_disk_over_a_simulated_network_in_virtual_time() {
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    let target =
        Arc::new(Mutex::new(Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 8192)))));
    let network = Simulated { target: Arc::clone(&target), properties };
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
