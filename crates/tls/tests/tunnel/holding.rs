//! A network whose sockets keep what they have taken until they are polled, as another layer does.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::task::{Context, Poll};

use iscsi_initiator::TargetAddress;
use iscsi_initiator::transport::{
    Granted, Interface, Limits, Network, Pending, Plan, Socket, TcpInfo,
};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Holding;

struct Held {
    below: TcpStream,
    unsent: Mutex<Vec<u8>>,
}

impl Network for Holding {
    fn resolve<'a>(&'a self, portal: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
        let address = SocketAddr::new(portal.host.parse().unwrap(), portal.port);
        Box::pin(async move { Ok(vec![address]) })
    }

    fn connect<'a>(
        &'a self,
        _: &'a TargetAddress,
        address: SocketAddr,
        _: &'a Plan,
    ) -> Pending<'a, Box<dyn Socket>> {
        Box::pin(async move {
            let below = TcpStream::connect(address).await?;
            Ok(Box::new(Held { below, unsent: Mutex::default() }) as Box<dyn Socket>)
        })
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }
}

impl Held {
    fn flush(&self) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap();
        while !unsent.is_empty() {
            let count = self.below.try_write(&unsent)?;
            unsent.drain(..count);
        }
        Ok(())
    }
}

impl Socket for Held {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.below.poll_read_ready(context).map(drop)
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
        self.below.try_read_vectored(slices)
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read(slices)
    }

    fn write(&self, slices: &[IoSlice<'_>], _: bool) -> io::Result<usize> {
        assert!(!self.has_unsent(), "written to before everything was sent");
        let mut unsent = self.unsent.lock().unwrap();
        for slice in slices {
            let room = 10_000 - unsent.len();
            unsent.extend(&slice[..slice.len().min(room)]);
        }
        Ok(unsent.len())
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
