//! A network that others could bring: its sockets keep bytes in both directions, as the documentation of `transport` allows.
//!
//! The tests of `iscsi-tls` use this file as well.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use iscsi_initiator::TargetAddress;
use iscsi_initiator::transport::{
    Granted, Interface, Limits, Network, Pending, Plan, Socket, TcpInfo,
};
use tokio::net::TcpStream;

/// Address that the network returns for its portal.
const MADE_UP: ([u8; 4], u16) = ([192, 0, 2, 1], 3260);

/// Most bytes that a layer takes of one write.
const RECORD: usize = 7000;

/// A network whose connections all lead to one address, through a [`Layer`]. It resolves no names: it only knows its portal.
#[derive(Debug)]
pub(crate) struct Layered {
    pub(crate) portal: &'static str,
    pub(crate) to: SocketAddr,
    /// Number of writes.
    pub(crate) writes: Arc<AtomicUsize>,
}

/// A layer over TCP, which keeps bytes as encryption does with its records: it sends what a write has taken when it is polled, and returns
/// received bytes in short pieces. It has no `TCP_INFO`.
struct Layer {
    below: TcpStream,
    unsent: Mutex<VecDeque<u8>>,
    unread: Mutex<VecDeque<u8>>,
    writes: Arc<AtomicUsize>,
}

impl Network for Layered {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        assert_eq!(portal.host, self.portal, "the name is passed on as it is in the URL");
        Box::pin(async { Ok(vec![MADE_UP.into()]) })
    }

    fn connect<'a>(
        &'a self,
        portal: &'a TargetAddress,
        address: SocketAddr,
        _: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        assert_eq!((&*portal.host, address), (self.portal, MADE_UP.into()));
        Box::pin(async {
            let below = TcpStream::connect(self.to).await?;
            let writes = Arc::clone(&self.writes);
            let layer = Layer { below, unsent: Mutex::default(), unread: Mutex::default(), writes };
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
        self.writes.fetch_add(1, Ordering::Relaxed);
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
