//! Bytes between the session and its socket.

use std::io::{self, IoSlice};

use bytes::Buf;
use iscsi_session::{Transmit, TransportError};
use iscsi_tuner::Sends;
use tokio::net::TcpStream;

use super::{CID, Driver, Link, now};
use crate::transport;

/// As many slices as one system call takes (IOV_MAX on Linux).
const MAX_SLICES: usize = 1024;

/// System calls in one direction before the other one has its turn.
const CALLS_PER_TURN: usize = 16;

/// What one system call takes in the manner of the past.
const PAGE: usize = 4096;

impl Driver {
    /// Sends what there is to send, within what the connection brings to the target in time.
    pub(super) fn write_at_pace(&mut self) -> Result<(), TransportError> {
        self.write()?;
        if !self.session.is_holding_back() {
            return Ok(());
        }
        self.set_pace();
        self.write()
    }

    /// Sends what there is to send and the socket takes.
    fn write(&mut self) -> Result<(), TransportError> {
        let Link::Up(stream, tuner) = &self.link else { return Ok(()) };
        let plan = tuner.plan();
        self.blocked = true;
        for _ in 0..CALLS_PER_TURN {
            let Some(mut transmit) = self.session.poll_transmit(CID, now()) else {
                self.blocked = false;
                return Ok(());
            };
            let result = match plan.sends.value {
                Sends::OnePage => write_page(stream, &transmit),
                Sends::ManyPages => write_pages(stream, &transmit, plan.cork.value),
            };
            match result {
                Ok(count) => transmit.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TransportError::Io(error.to_string())),
            }
        }
        Ok(())
    }

    /// Reads what has come, and acts on it.
    pub(super) fn read(&mut self) -> Result<(), TransportError> {
        for _ in 0..CALLS_PER_TURN {
            let Link::Up(stream, _) = &self.link else { return Ok(()) };
            let mut slices = self.session.receive_slices(CID);
            let room: usize = slices.iter().map(|slice| slice.len()).sum();
            let count = match transport::read(stream, &mut slices) {
                Ok(0) => return Err(TransportError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TransportError::Io(error.to_string())),
            };
            self.session.handle_received(CID, count, now());
            self.dispatch();
            if count < room {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Writes as much as one system call takes.
fn write_pages(stream: &TcpStream, transmit: &Transmit<'_>, cork: bool) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
    let filled = transmit.chunks_vectored(&mut slices);
    let slices = slices.get(..filled).unwrap_or_default();
    let has_more = cork && slices.len() == MAX_SLICES && {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        total < transmit.remaining()
    };
    transport::write(stream, slices, has_more)
}

/// Writes at most a page.
fn write_page(stream: &TcpStream, transmit: &Transmit<'_>) -> io::Result<usize> {
    let chunk = transmit.chunk();
    stream.try_write(chunk.get(..PAGE).unwrap_or(chunk))
}
