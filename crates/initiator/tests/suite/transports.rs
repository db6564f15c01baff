//! Tests of transports that others bring: [`Network`] and [`Socket`] as their documentation allows them to be.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::support::{Rig, initiator, pattern, soon};
use iscsi_initiator::transport::{
    Granted, Interface, Limits, Network, Pending, Plan, Socket, TcpInfo,
};
use iscsi_initiator::{Options, TargetAddress};
use tokio::net::TcpStream;

/// Most bytes that a layer takes of one write.
const RECORD: usize = 7000;

/// A network whose connections lead to one address, through a layer that keeps bytes in both directions.
#[derive(Debug)]
struct Layered {
    to: SocketAddr,
    kept: Arc<AtomicUsize>,
}

/// A layer over TCP. What it takes of a write, it sends later, and what it reads, it hands out in short pieces: both as a layer
/// of encryption does with its records. Of the link it reports nothing.
struct Layer {
    below: TcpStream,
    unsent: Mutex<VecDeque<u8>>,
    unread: Mutex<VecDeque<u8>>,
    /// Number of writes of which a part waited in the layer.
    kept: Arc<AtomicUsize>,
}

impl Network for Layered {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        assert_eq!(portal.host, "no-such-host.example", "the name is not resolved before");
        Box::pin(async { Ok(vec![([192, 0, 2, 1], 3260).into()]) })
    }

    fn connect<'a>(
        &'a self,
        portal: &'a TargetAddress,
        address: SocketAddr,
        _: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        assert_eq!(portal.host, "no-such-host.example");
        assert_eq!(address, ([192, 0, 2, 1], 3260).into());
        Box::pin(async {
            let below = TcpStream::connect(self.to).await?;
            let kept = Arc::clone(&self.kept);
            let layer = Layer { below, unsent: Mutex::default(), unread: Mutex::default(), kept };
            Ok(Box::new(layer) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

impl Layer {
    /// Sends one byte less than the layer has, then the rest.
    fn flush(&self) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap();
        while !unsent.is_empty() {
            let part = unsent.make_contiguous();
            let part = if part.len() > 1 { &part[..part.len() - 1] } else { part };
            let count = self.below.try_write(part)?;
            unsent.drain(..count);
        }
        Ok(())
    }
}

impl Socket for Layer {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.unread.lock().unwrap().is_empty() {
            self.below.poll_read_ready(context).map(drop)
        } else {
            Poll::Ready(())
        }
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            std::task::ready!(self.below.poll_write_ready(context)).ok();
            match self.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut unread = self.unread.lock().unwrap();
        if unread.is_empty() {
            let mut record = [0; RECORD];
            let count = self.below.try_read(&mut record)?;
            unread.extend(&record[..count]);
        }
        // A short piece, of the first slice that has room.
        let slice = slices.iter_mut().find(|slice| !slice.is_empty()).unwrap();
        let len = slice.len().min(1000);
        unread.read(&mut slice[..len])
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read(slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<usize> {
        assert!(!self.has_unsent(), "written to before everything was sent");
        let mut unsent = self.unsent.lock().unwrap();
        let mut taken = 0;
        for slice in slices {
            let part = &slice[..slice.len().min(RECORD - taken)];
            taken += unsent.write(part)?;
        }
        self.kept.fetch_add(1, Ordering::Relaxed);
        Ok(taken)
    }

    fn has_unsent(&self) -> bool {
        !self.unsent.lock().unwrap().is_empty()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Err(ErrorKind::Unsupported.into())
    }

    fn apply(&self, _: &Plan) -> Granted {
        Granted::default()
    }

    fn interface(&self) -> Option<Interface> {
        None
    }

    fn set_abortive(&self) {}
}

/// A layer that keeps bytes in both directions, over a network that resolves names in its own way, and knows nothing of the
/// link.
#[tokio::test]
async fn a_layer_keeps_what_it_has_taken_and_what_is_not_read_yet() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let kept = Arc::new(AtomicUsize::new(0));
    let network = Layered { to: rig.server.address(), kept: Arc::clone(&kept) };
    let options = Options::default().with_network(Arc::new(network));
    let url = rig.unit_url(0, "").replace("127.0.0.1", "no-such-host.example");
    let disk = soon(initiator(options).disk(url)).await.unwrap();
    let data = pattern(1_000_003, 7);
    soon(disk.write_at(513, data.clone())).await.unwrap();
    assert!(rig.disk.holds(513, &data));
    assert_eq!(soon(disk.read_at(513, data.len())).await.unwrap(), data);
    soon(disk.flush()).await.unwrap();
    assert!(kept.load(Ordering::Relaxed) > 100);
    soon(disk.logout()).await.unwrap();
    rig.assert_clean();
}
