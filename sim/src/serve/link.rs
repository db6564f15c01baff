//! The client's side of a connection.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_nbd::client::{Completed, Goal, Handshake, HandshakeOutcome, Negotiated, Transmission};
use iscsi_nbd::{BASE_ALLOCATION, Command, Cookie};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::asked::Asked;
use super::pipe::Line;
use super::server::Standing;
use crate::oracle::GRAIN;
use crate::world::Shared;

/// A connection after its handshake.
pub(super) struct Link {
    pub(super) standing: Arc<Standing>,
    pub(super) line: Line,
    reader: ReadHalf<DuplexStream>,
    outgoing: mpsc::UnboundedSender<Bytes>,
    transmission: Transmission,
    input: BytesMut,
    /// Requests without a response.
    pub(super) asked: BTreeMap<Cookie, Asked>,
    /// Numbers of the two handles by which the oracle knows the connection: the first until a loss is
    /// reported, the second after that.
    handles: [u32; 2],
    /// When a loss was first reported over this connection.
    reported_at: Option<Instant>,
    /// Whether a response has arrived. If so, the server has made the connection's handle.
    is_known: bool,
}

impl Link {
    /// Connects to a server, and performs the handshake.
    pub(super) async fn connect(
        shared: &Arc<Shared>,
        standing: &Arc<Standing>,
        room: usize,
    ) -> io::Result<Self> {
        let (line, mut stream, end) = Line::new(shared, room);
        standing.visit(end);
        let contexts = vec![BASE_ALLOCATION.to_owned()];
        let mut handshake = Handshake::new(Goal::Export { name: String::new(), contexts });
        let mut input = BytesMut::new();
        let negotiated = negotiate(&mut stream, &mut handshake, &mut input).await?;
        let (reader, writer) = tokio::io::split(stream);
        let (outgoing, requests) = mpsc::unbounded_channel();
        tokio::spawn(send_all(requests, writer));
        let transmission = Transmission::new(&negotiated);
        let (standing, handles) = (Arc::clone(standing), standing.handles());
        let (asked, reported_at, is_known) = (BTreeMap::new(), None, false);
        Ok(Self {
            standing,
            line,
            reader,
            outgoing,
            transmission,
            input,
            asked,
            handles,
            reported_at,
            is_known,
        })
    }

    /// Sends a request, with the data of a write.
    pub(super) fn ask(
        &mut self,
        command: Command,
        asked: Asked,
        data: Option<Bytes>,
    ) -> Result<(), String> {
        let (offset, len) = (asked.grains.start * GRAIN, asked.grains.len() * GRAIN);
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let request = self.transmission.submit(command, offset as u64, len);
        let request = request.map_err(|breach| format!("a request may not be: {breach}"))?;
        // If the server is gone, the client detects that when it waits for the response.
        drop(self.outgoing.send(Bytes::copy_from_slice(&request.encode())));
        data.into_iter().for_each(|data| drop(self.outgoing.send(data)));
        self.asked.insert(request.cookie, asked);
        Ok(())
    }

    /// Waits for bytes. Fails when the server is gone.
    pub(super) async fn receive(&mut self) -> io::Result<()> {
        self.input.reserve(self.transmission.wanted().max(1 << 12));
        let count = self.reader.read_buf(&mut self.input).await?;
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Returns the next response that has arrived.
    ///
    /// # Errors
    /// The breach of the protocol by the server.
    pub(super) fn answer(&mut self) -> Result<Option<(Asked, Completed)>, String> {
        let completed = self.transmission.receive(&mut self.input);
        let completed = completed.map_err(|error| format!("a server breaks a rule: {error}"))?;
        let Some(completed) = completed else { return Ok(None) };
        let asked = self.asked.remove(&completed.request.cookie);
        let asked = asked.ok_or("an answer to what was not asked")?;
        Ok(Some((asked, completed)))
    }

    /// Returns the handles of the connection at the first call; `None` after that. Call it when a response has
    /// arrived: then the server has made its handle for the connection.
    pub(super) fn new_handles(&mut self) -> Option<[u32; 2]> {
        (!std::mem::replace(&mut self.is_known, true)).then_some(self.handles)
    }

    /// Returns the handle of a flush that was sent at `sent`. If a loss was reported while the flush was in
    /// flight, the flush does not report that loss, so it counts for the first handle.
    pub(super) fn handle_at(&self, sent: Instant) -> u32 {
        self.handles[usize::from(self.reported_at.is_some_and(|reported_at| reported_at <= sent))]
    }

    /// Returns the number of the connection among those of its server.
    pub(super) fn number(&self) -> u64 {
        u64::from(self.handles[0] / 2)
    }

    /// Notes that a loss was reported. Returns the second handle, which the report belongs to.
    pub(super) fn record_report(&mut self) -> u32 {
        self.reported_at.get_or_insert_with(Instant::now);
        self.handles[1]
    }

    /// Sends the request to disconnect.
    pub(super) fn disconnect(&mut self) {
        let goodbye = self.transmission.disconnect();
        drop(self.outgoing.send(Bytes::copy_from_slice(&goodbye)));
    }
}

async fn negotiate(
    stream: &mut DuplexStream,
    handshake: &mut Handshake,
    input: &mut BytesMut,
) -> io::Result<Negotiated> {
    loop {
        let outcome = handshake.receive(input).map_err(io::Error::other)?;
        while let Some(bytes) = handshake.poll_transmit() {
            stream.write_all(&bytes).await?;
        }
        match outcome {
            Some(HandshakeOutcome::Negotiated(negotiated)) => return Ok(negotiated),
            Some(HandshakeOutcome::Exports(_) | HandshakeOutcome::StartTls) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            None => {}
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Sends requests until there are no more, or the server is gone. Then ends the stream.
async fn send_all(
    mut requests: mpsc::UnboundedReceiver<Bytes>,
    mut writer: WriteHalf<DuplexStream>,
) {
    while let Some(bytes) = requests.recv().await {
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
    drop(writer.shutdown().await);
}
