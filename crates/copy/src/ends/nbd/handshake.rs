//! Performs the NBD handshake over a new socket.

use bytes::BytesMut;
use iscsi_nbd::client::{Goal, Handshake, HandshakeOutcome, Negotiated};

use super::NbdError;
use super::socket::{Reader, Writer, connect};
use super::uri::NbdUri;

/// Largest size of an export: servers use files, whose offsets are signed 64-bit numbers.
const MAX_SIZE: u64 = i64::MAX as u64;

/// A socket after the handshake, and the negotiated terms.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) negotiated: Negotiated,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Bytes that were received after the last message of the handshake.
    pub(super) input: BytesMut,
}

/// Connects to an export, and requests metadata contexts. The server may select only some of them.
pub(super) async fn shake_hands(uri: &NbdUri, contexts: &[&str]) -> Result<Ready, NbdError> {
    let place = || uri.place().to_string();
    let connect_error = |cause| NbdError::Connect { place: place(), cause };
    let (mut reader, mut writer) = connect(uri.place()).await.map_err(connect_error)?;
    let contexts = contexts.iter().map(|context| (*context).to_owned()).collect();
    let goal = Goal::Export { name: uri.export().to_owned(), contexts };
    let (mut handshake, mut input) = (Handshake::new(goal), BytesMut::new());
    loop {
        let outcome = handshake.receive(&mut input);
        while let Some(bytes) = handshake.poll_transmit() {
            writer.write_all(&bytes).await.map_err(connect_error)?;
        }
        let export = || uri.export().to_owned();
        let refused = |cause| NbdError::Handshake { place: place(), export: export(), cause };
        match outcome.map_err(refused)? {
            Some(HandshakeOutcome::Negotiated(negotiated)) => {
                let size = negotiated.export.size;
                if size > MAX_SIZE {
                    return Err(NbdError::TooLarge { place: place(), size });
                }
                return Ok(Ready { negotiated, reader, writer, input });
            }
            Some(HandshakeOutcome::Exports(_)) => return Err(NbdError::Lost),
            None => {}
        }
        input.reserve(66 << 10);
        if reader.read_buf(&mut input).await.map_err(connect_error)? == 0 {
            return Err(NbdError::Silent(place()));
        }
    }
}
