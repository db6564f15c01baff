//! Measures the session's state machine alone, on the runtime's sockets: the cost of a read without paths,
//! locks between tasks, time limits and the tuner. An initiator also has these, so its reads cost more.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use iscsi_initiator::Url;
use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_pdu::{Cid, IscsiName, Isid, Itt};
use iscsi_session::{Command, Config, Output, ReadAhead, Session, SessionKind};
use tokio::net::TcpStream;

use crate::Trouble;
use crate::args::AloneArgs;

/// Reads per slot of the queue before the measurement.
pub(crate) const WARM_UP: u64 = 4;
/// Bytes of a block of the units.
pub(crate) const BLOCK: u64 = 512;
/// Slices of one send. A command needs one slice.
const SLICES: usize = 16;
/// Maximum number of TEST UNIT READY: the first one reports a unit attention.
const TRIES: u32 = 3;

thread_local! {
    /// Read-ahead buffer of the thread. The session that reads borrows it, as in the driver.
    static READ_AHEAD: Cell<Option<ReadAhead>> = const { Cell::new(None) };
}

/// A session with one connection, and several reads in flight.
pub(crate) struct Alone {
    session: Session,
    pub(crate) socket: Arc<TcpStream>,
    cid: Cid,
    lun: Lun,
    /// Bytes of one read.
    pub(crate) io: usize,
    /// Number of reads in flight.
    pub(crate) depth: u32,
    is_logged_in: bool,
    /// Tag, status and data of the commands that have ended.
    pub(crate) ended: Vec<(Itt, Status, BytesMut)>,
}

impl Alone {
    pub(crate) async fn open(url: &Url, number: u32, args: &AloneArgs) -> Result<Self, Trouble> {
        let now = Instant::now();
        let name = IscsiName::parse("iqn.2026-01.org.example:initiator")?;
        let target_name = url.target.clone().ok_or("the URL names no target")?;
        let [.., high, low] = number.to_be_bytes();
        let isid = Isid::random([0, high, low], 0);
        let config = Config::new(name, isid, SessionKind::Normal { target_name });
        let mut session = Session::new(config, |bytes: &mut [u8]| bytes.fill(0), now);
        let socket = TcpStream::connect((&*url.portal.host, url.portal.port)).await?;
        socket.set_nodelay(true)?;
        let Some(Output::Connect { cid, .. }) = session.poll_output() else {
            return Err("the session asks for no connection".into());
        };
        session.handle_connected(cid, now);
        let (io, depth) = (usize::try_from(args.io.0)?, args.depth);
        let (lun, ended) = (url.lun.ok_or("the URL names no unit")?, Vec::new());
        let socket = Arc::new(socket);
        let mut alone = Self { session, socket, cid, lun, io, depth, is_logged_in: false, ended };
        alone.log_in().await?;
        Ok(alone)
    }

    /// Logs in, and waits until the unit is ready.
    async fn log_in(&mut self) -> Result<(), Trouble> {
        self.send(Instant::now()).await?;
        while !self.is_logged_in {
            self.read_when_ready().await?;
            self.send(Instant::now()).await?;
        }
        for _ in 0..TRIES {
            let command = Command::new(self.lun, Cdb::test_unit_ready());
            self.session.submit(command, Instant::now())?;
            self.send(Instant::now()).await?;
            while self.ended.is_empty() {
                self.read_when_ready().await?;
            }
            if self.ended.drain(..).all(|(_, status, _)| status == Status::GOOD) {
                return Ok(());
            }
        }
        Err("the unit is not ready".into())
    }

    /// Executes `count` reads.
    pub(crate) async fn read(mut self, count: u64) -> Result<Self, Trouble> {
        let (mut begun, mut ended) = (0, 0);
        let mut buffers = vec![BytesMut::from(&vec![0x5a; self.io][..]); self.depth as usize];
        while ended < count {
            let now = Instant::now();
            while begun < count
                && let Some(buffer) = buffers.pop()
            {
                self.submit(begun, buffer, now)?;
                begun += 1;
            }
            self.send(now).await?;
            self.read_when_ready().await?;
            for (_, status, data) in self.ended.drain(..) {
                buffers.push(whole(status, data, self.io)?);
                ended += 1;
            }
        }
        Ok(self)
    }

    /// Submits the read with this number; consecutive numbers are consecutive places on the unit.
    pub(crate) fn submit(
        &mut self,
        number: u64,
        buffer: BytesMut,
        now: Instant,
    ) -> Result<Itt, Trouble> {
        let blocks = u32::try_from(self.io as u64 / BLOCK)?;
        let read = Cdb::read_16(number * u64::from(blocks), blocks);
        Ok(self.session.submit(Command::new(self.lun, read).with_read(buffer), now)?)
    }

    /// Sends all bytes of the session.
    async fn send(&mut self, now: Instant) -> Result<(), Trouble> {
        while !self.try_send(now)? {
            self.socket.writable().await?;
        }
        Ok(())
    }

    /// Sends bytes of the session until all are sent or the socket accepts no more. Returns whether all were
    /// sent.
    pub(crate) fn try_send(&mut self, now: Instant) -> io::Result<bool> {
        while let Some(mut transmit) = self.session.poll_transmit(self.cid, now) {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = transmit.chunks_vectored(&mut slices);
            let result = match slices.get(..filled).unwrap_or_default() {
                [lone] => self.socket.try_write(lone),
                several => self.socket.try_write_vectored(several),
            };
            match result {
                Ok(count) => transmit.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits until the socket is readable, and reads from it.
    async fn read_when_ready(&mut self) -> Result<(), Trouble> {
        self.socket.readable().await?;
        self.take_in()
    }

    /// Reads the bytes that are available in the socket, and passes them to the session.
    pub(crate) fn take_in(&mut self) -> Result<(), Trouble> {
        self.session.lend_read_ahead(self.cid, READ_AHEAD.take().unwrap_or_default());
        let result = self.receive();
        READ_AHEAD.set(self.session.reclaim_read_ahead(self.cid));
        result?;
        while let Some(output) = self.session.poll_output() {
            if let Output::LoggedIn { .. } = output {
                self.is_logged_in = true;
            } else if let Output::Completed { itt, result, .. } = output {
                let completion = result?;
                self.ended.push((itt, completion.status, completion.data));
            } else if let Output::Ended(result) = output {
                result?;
                return Err("the session has ended".into());
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Trouble> {
        let mut slices = self.session.receive_slices(self.cid);
        let result = match &mut slices {
            [rest, ahead] if rest.is_empty() => self.socket.try_read(ahead),
            both => self.socket.try_read_vectored(both),
        };
        match result {
            Ok(0) => Err("the target has closed the connection".into()),
            Ok(count) => {
                self.session.handle_received(self.cid, count, Instant::now());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the data of a read. It is an error if the read failed or returned fewer than `io` bytes.
pub(crate) fn whole(status: Status, data: BytesMut, io: usize) -> Result<BytesMut, Trouble> {
    if (status, data.len()) == (Status::GOOD, io) {
        return Ok(data);
    }
    Err(format!("a read ended with {status} and {} bytes", data.len()).into())
}
