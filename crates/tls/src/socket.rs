//! A socket that encrypts what is written to the socket below it, and decrypts what is read from there.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, BufRead as _, ErrorKind, IoSlice, IoSliceMut, Read as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use iscsi_initiator::transport::{Granted, Interface, Plan, Rate, Socket, TcpInfo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::refusal::Refusal;

/// Most bytes of ciphertext that wait for the socket below. A ping, or data that the target has asked for, waits behind them.
const UNSENT: usize = 128 << 10;
/// Most bytes of one read of ciphertext: several records.
const READ: usize = 64 << 10;

/// Bytes of data in a full record, and of its frame: header, type and tag (RFC 8446 §5.2).
const PAYLOAD: u64 = 1 << 14;
const FRAME: u64 = 5 + 1 + 16;
/// Most bytes of an encrypted record, with its header (RFC 8446 §5.2).
const RECORD: usize = 5 + (1 << 14) + 256;
/// Number of bytes after which the peer is asked for new keys. AES-GCM allows 2^24 records (RFC 8446 §5.5): this stays below it if a
/// record has 1 KiB or more on average.
const RENEWAL: u64 = 16 << 30;

thread_local! {
    /// Memory for ciphertext, lent to the connection that the thread reads from. A connection keeps it while it holds
    /// ciphertext that is not decrypted.
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// A function that reads from the socket below.
type Read = fn(&dyn Socket, &mut [IoSliceMut<'_>]) -> io::Result<usize>;

/// A connection over TLS. Plan, limits and counters are those of the socket below.
pub(crate) struct TlsSocket {
    below: Box<dyn Socket>,
    state: Mutex<State>,
}

struct State {
    connection: ClientConnection,
    /// Ciphertext that was received and is not decrypted yet.
    received: Received,
    /// An error that the next read returns, because bytes that came before it are returned first.
    failure: Option<io::Error>,
    /// Number of bytes that were decrypted since the peer was last asked for new keys.
    decrypted: u64,
    /// Number of decrypted bytes after which the peer is asked for new keys.
    renewal: u64,
    /// Waker of the task that waits until the socket is readable.
    reader: Option<Waker>,
    is_abortive: bool,
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
    /// Encrypts an open connection: returns after the handshake.
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
            failure: None,
            decrypted: 0,
            renewal: RENEWAL,
            reader: None,
            is_abortive: false,
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
            while self.has_unsent(below) {
                poll_fn(|context| below.poll_writable(context)).await;
                match self.flush(below) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    result => result?,
                }
            }
            if !self.connection.is_handshaking() {
                return Ok(());
            }
            if self.received.is_empty() {
                poll_fn(|context| below.poll_readable(context)).await;
            }
            match self.receive(below, |socket, slices| socket.read(slices)) {
                Ok(0) => {
                    let reason = "the peer has closed the connection in the handshake of TLS: does it speak TLS there?";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, reason));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
        }
    }

    /// Returns whether ciphertext waits, here or in the socket below.
    fn has_unsent(&self, below: &dyn Socket) -> bool {
        self.connection.wants_write() || below.has_unsent()
    }

    /// Returns whether a read would return something: bytes, the end or an error.
    fn is_readable(&mut self) -> bool {
        let decrypted = self.connection.reader().fill_buf().map(drop);
        !matches!(decrypted, Err(error) if error.kind() == ErrorKind::WouldBlock)
            || self.failure.is_some()
            || !self.received.is_empty()
    }

    /// Reads at least one decrypted byte; returns 0 at the end.
    fn read(&mut self, below: &dyn Socket, into: &mut [u8], read: Read) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // rustls returns `Ok(0)` at the end if the peer has sent close_notify, and otherwise this error.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(io::Error::new(error.kind(), "the stream of TLS was cut off"));
                }
                result => {
                    self.renew_keys(*result.as_ref().unwrap_or(&0), below);
                    return result;
                }
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            self.receive(below, read)?;
        }
    }

    /// Counts decrypted bytes, and asks the peer for new keys when there are enough. rustls renews the keys for sending by itself.
    fn renew_keys(&mut self, count: usize, below: &dyn Socket) {
        self.decrypted += count as u64;
        if self.decrypted < self.renewal {
            return;
        }
        self.decrypted = 0;
        // If the connection has failed, the next read reports that. If the socket below takes nothing now, the next write sends the
        // request first.
        drop(self.connection.refresh_traffic_keys());
        drop(self.flush(below));
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Decrypts received ciphertext. If there is none, reads from the socket below first. Returns 0 at the end of the stream below.
    fn receive(&mut self, below: &dyn Socket, read: Read) -> io::Result<usize> {
        if self.received.is_empty() {
            self.received.fill(below, read)?;
        }
        // A read of 0 bytes tells rustls that the stream has ended.
        let count = self.connection.read_tls(&mut self.received)?;
        self.received.release();
        if let Err(error) = self.connection.process_new_packets() {
            // Sends the alert with the reason, if the socket below takes it. Bytes that were decrypted before are returned first.
            drop(self.flush(below));
            self.failure = Some(io::Error::new(ErrorKind::InvalidData, Refusal(error)));
        }
        Ok(count)
    }

    /// Sends the waiting ciphertext.
    ///
    /// # Errors
    /// `WouldBlock` if the socket below does not take all of it.
    fn flush(&mut self, below: &dyn Socket) -> io::Result<()> {
        loop {
            if below.has_unsent() {
                return Err(ErrorKind::WouldBlock.into());
            }
            if !self.connection.wants_write() {
                return Ok(());
            }
            match self.connection.write_tls(&mut Below(below)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => drop(result?),
            }
        }
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

    /// Returns the memory to the thread if no ciphertext is left in it.
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
        let mut state = self.state();
        if state.is_readable() {
            return Poll::Ready(());
        }
        let poll = self.below.poll_readable(context);
        if poll.is_pending() {
            state.reader = Some(context.waker().clone());
        }
        poll
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.below.poll_writable(context));
            let mut state = self.state();
            match state.flush(&*self.below) {
                Ok(()) => return Poll::Ready(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    // A read reports the error, since no further write may follow.
                    state.failure.get_or_insert(error);
                    state.wake_reader();
                    return Poll::Ready(());
                }
            }
        }
    }

    fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_by(slices, |socket, slices| socket.read(slices))
    }

    fn read_unasked(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let result = self.read_by(slices, |socket, slices| socket.read_unasked(slices));
        // The task may be waiting for the socket below, which does not report bytes that are in this socket already.
        let mut state = self.state();
        if state.is_readable() {
            state.wake_reader();
        }
        result
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
        self.state().has_unsent(&*self.below)
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.below.tcp_info()
    }

    fn apply(&self, plan: &Plan) -> Granted {
        self.below.apply(plan)
    }

    fn limit_pacing(&self, rate: Option<Rate>) -> io::Result<()> {
        // The limit is one of payload, and the socket below also sends the frames of the records.
        let with_frames = |rate: Rate| {
            let bits = rate.bits_per_second();
            Rate::from_bits_per_second(bits + bits * FRAME / PAYLOAD).unwrap_or(Rate::MAX)
        };
        self.below.limit_pacing(rate.map(with_frames))
    }

    fn set_receive_low_water(&self, bytes: usize) -> io::Result<()> {
        // A part of a record may have been read already, and does not arrive at the socket below again.
        self.below.set_receive_low_water(bytes.saturating_sub(RECORD).max(1))
    }

    fn encryption(&self) -> Option<String> {
        let suite = self.state().connection.negotiated_cipher_suite()?.suite();
        Some(suite.as_str().map_or_else(|| format!("{suite:?}"), str::to_owned))
    }

    fn interface(&self) -> Option<Interface> {
        self.below.interface()
    }

    fn set_abortive(&self) {
        self.state().is_abortive = true;
        self.below.set_abortive();
    }
}

impl Drop for TlsSocket {
    /// Sends close_notify, if the socket below takes it. An abortive close sends nothing.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.is_abortive {
            return;
        }
        state.connection.send_close_notify();
        drop(state.flush(&*self.below));
    }
}

#[cfg(test)]
mod tests;
