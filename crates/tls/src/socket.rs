//! A socket that encrypts what is written to the socket below it, and decrypts what is read from there.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use iscsi_initiator::transport::{Granted, Interface, Plan, Rate, Socket, TcpInfo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// Most ciphertext that waits for the socket below, bytes. It is little, so that a ping or an answer to the target does not wait
/// behind more than the driver's own queue holds back.
const UNSENT: usize = 128 << 10;
/// Length of one read of ciphertext, bytes: several records.
const READ: usize = 64 << 10;

thread_local! {
    /// Memory for ciphertext. A connection has it while it is read from, or while a part is left of what was read.
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// How the socket below is read.
type Read = fn(&dyn Socket, &mut [IoSliceMut<'_>]) -> io::Result<usize>;

/// A connection over TLS. The socket below is in full feature phase for the tuner: plan, limits and counters are those of the link.
pub(crate) struct TlsSocket {
    below: Box<dyn Socket>,
    state: Mutex<State>,
}

struct State {
    connection: ClientConnection,
    /// Ciphertext that was read and not decrypted yet.
    received: Received,
    /// Decrypted bytes that were not read yet.
    plaintext: usize,
    /// Error of the socket below, after bytes that came before it.
    failure: Option<io::Error>,
    is_at_end: bool,
}

/// Ciphertext in a buffer, from `start` to `end`.
#[derive(Default)]
struct Received {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
}

/// The socket below as a writer.
struct Below<'a>(&'a dyn Socket);

impl TlsSocket {
    /// Makes the handshake over a connection that is set up.
    pub(crate) async fn connect(
        below: Box<dyn Socket>,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let mut connection = ClientConnection::new(config, name)
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        connection.set_buffer_limit(Some(UNSENT));
        let mut state = State {
            connection,
            received: Received::default(),
            plaintext: 0,
            failure: None,
            is_at_end: false,
        };
        state.shake_hands(&*below).await?;
        Ok(Self { below, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_by(&self, slices: &mut [IoSliceMut<'_>], read: Read) -> io::Result<usize> {
        let mut state = self.state();
        let mut count = 0;
        for slice in slices {
            let mut rest = &mut **slice;
            while !rest.is_empty() {
                match state.read(&*self.below, rest, read) {
                    Ok(0) => return Ok(count),
                    Ok(part) => {
                        count += part;
                        rest = rest.get_mut(part..).unwrap_or_default();
                    }
                    Err(error) if count == 0 => return Err(error),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                    Err(error) => {
                        state.failure = Some(error);
                        return Ok(count);
                    }
                }
            }
        }
        Ok(count)
    }
}

impl State {
    async fn shake_hands(&mut self, below: &dyn Socket) -> io::Result<()> {
        loop {
            while self.connection.wants_write() {
                poll_fn(|context| below.poll_writable(context)).await;
                match self.flush(below) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    result => result?,
                }
            }
            if !self.connection.is_handshaking() {
                return Ok(());
            }
            poll_fn(|context| below.poll_readable(context)).await;
            match self.receive(below, |socket, slices| socket.read(slices)) {
                Ok(()) if self.is_at_end => {
                    let reason = "the peer has closed the connection in the handshake of TLS: does it speak TLS there?";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, reason));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => result?,
            }
        }
    }

    /// Reads decrypted bytes, at least one; 0 at the end.
    fn read(&mut self, below: &dyn Socket, into: &mut [u8], read: Read) -> io::Result<usize> {
        loop {
            if self.plaintext > 0 {
                let count = self.connection.reader().read(into)?;
                self.plaintext -= count.min(self.plaintext);
                return Ok(count);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.is_at_end {
                // `Ok(0)` after the peer's close_notify, `UnexpectedEof` where the stream was cut off.
                return self.connection.reader().read(into);
            }
            self.receive(below, read)?;
        }
    }

    /// Decrypts what was received, or else reads from the socket below and decrypts that.
    fn receive(&mut self, below: &dyn Socket, read: Read) -> io::Result<()> {
        if self.received.is_empty() {
            self.is_at_end = self.received.fill(below, read)? == 0;
        }
        // At the end rustls reads zero bytes, and knows from that whether the stream was cut off.
        self.connection.read_tls(&mut self.received)?;
        self.received.release();
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.plaintext = state.plaintext_bytes_to_read();
                self.is_at_end |= state.peer_has_closed();
                Ok(())
            }
            Err(error) => {
                // The alert tells the peer why; if it cannot be sent, the end of the connection does.
                drop(self.flush(below));
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    /// Sends the ciphertext that waits.
    fn flush(&mut self, below: &dyn Socket) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Below(below))?;
        }
        Ok(())
    }
}

impl Received {
    const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn fill(&mut self, below: &dyn Socket, read: Read) -> io::Result<usize> {
        let spare = || SPARE.take().unwrap_or_else(|| vec![0; READ].into_boxed_slice());
        let buffer = self.buffer.get_or_insert_with(spare);
        let result = read(below, &mut [IoSliceMut::new(buffer)]);
        (self.start, self.end) = (0, *result.as_ref().unwrap_or(&0));
        if result.is_err() {
            self.release();
        }
        result
    }

    /// Gives the memory back once it is empty.
    fn release(&mut self) {
        if self.is_empty()
            && let Some(buffer) = self.buffer.take()
        {
            SPARE.set(Some(buffer));
        }
    }
}

impl io::Read for Received {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        let mut rest = buffer.get(self.start..self.end).unwrap_or_default();
        let count = rest.read(into)?;
        self.start += count;
        Ok(count)
    }
}

impl Write for Below<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)], false)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(slices, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for TlsSocket {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let state = self.state();
        if state.plaintext > 0
            || !state.received.is_empty()
            || state.failure.is_some()
            || state.is_at_end
        {
            return Poll::Ready(());
        }
        self.below.poll_readable(context)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.below.poll_writable(context));
            match self.state().flush(&*self.below) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The next write returns an error again.
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_by(slices, |socket, slices| socket.read(slices))
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_by(slices, |socket, slices| socket.read_unasked(slices))
    }

    fn write(&self, slices: &[IoSlice<'_>], _has_more: bool) -> io::Result<usize> {
        let mut state = self.state();
        state.flush(&*self.below)?;
        let count = state.connection.writer().write_vectored(slices)?;
        match state.flush(&*self.below) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    fn has_unsent(&self) -> bool {
        self.state().connection.wants_write()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.below.tcp_info()
    }

    fn apply(&self, plan: &Plan) -> Granted {
        self.below.apply(plan)
    }

    fn limit_pacing(&self, rate: Option<Rate>) -> io::Result<()> {
        self.below.limit_pacing(rate)
    }

    // The low-water mark of the socket below stays at one byte: a part of a record that is here already would not count.

    fn interface(&self) -> Option<Interface> {
        self.below.interface()
    }

    fn set_abortive(&self) {
        self.below.set_abortive();
    }
}

impl Drop for TlsSocket {
    /// Tells the peer that nothing follows, as far as the socket below takes it.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.connection.send_close_notify();
        drop(state.flush(&*self.below));
    }
}
