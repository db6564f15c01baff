//! Performs the NBD handshake over a new socket.

use std::io::{self, ErrorKind};

use bytes::BytesMut;
use iscsi_nbd::client::{Goal, Handshake, HandshakeOutcome, Negotiated};

use super::NbdError;
use super::socket::{Reader, Socket, Writer, connect};
use super::tls::NbdTls;
use super::uri::{NbdUri, Place};

/// Largest size of an export: servers use files, whose offsets are signed 64-bit numbers.
const MAX_SIZE: u64 = i64::MAX as u64;

/// Reason for the end of a connection that the server has closed without one.
pub(super) const CLOSED: &str = "the server has closed it";
/// Reason for the end of an encrypted connection without close_notify (RFC 8446 §6.1).
pub(super) const CUT_OFF: &str = "the encrypted stream was cut off";

/// A socket after the handshake, and the negotiated terms.
pub(super) struct Ready {
    pub(super) negotiated: Negotiated,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Bytes that were received after the last message of the handshake.
    pub(super) input: BytesMut,
}

/// Connects to an export, and requests metadata contexts. The server may select only some of them. If the URI asks for TLS, the name of
/// the export is sent over the encrypted connection only.
pub(super) async fn shake_hands(uri: &NbdUri, contexts: &[&str]) -> Result<Ready, NbdError> {
    let place = || uri.place().to_string();
    let tls = uri.provider()?;
    let connected = connect(uri.place()).await;
    let mut socket = connected.map_err(|cause| broken(place(), false, cause))?;
    let contexts = contexts.iter().map(|context| (*context).to_owned()).collect();
    let handshake = Handshake::new(Goal::Export { name: uri.export().to_owned(), contexts });
    let mut handshake = if tls.is_some() { handshake.over_tls() } else { handshake };
    let mut input = BytesMut::new();
    loop {
        let outcome = handshake.receive(&mut input);
        while let Some(bytes) = handshake.poll_transmit() {
            let sent = socket.send(&bytes).await;
            sent.map_err(|cause| broken(place(), socket.is_encrypted(), cause))?;
        }
        let export = || uri.export().to_owned();
        let refused = |cause| NbdError::Handshake { place: place(), export: export(), cause };
        match outcome.map_err(refused)? {
            Some(HandshakeOutcome::Negotiated(negotiated)) => {
                let size = negotiated.export.size;
                if size > MAX_SIZE {
                    return Err(NbdError::TooLarge { place: place(), size });
                }
                let (reader, writer) = socket.into_split();
                return Ok(Ready { negotiated, reader, writer, input });
            }
            Some(HandshakeOutcome::StartTls) => {
                socket = secure(socket, tls, uri.place()).await?;
                continue;
            }
            Some(HandshakeOutcome::Exports(_)) => return Err(NbdError::Lost),
            None => {}
        }
        input.reserve(66 << 10);
        let (received, place) = (socket.read_buf(&mut input).await, place());
        match received {
            Ok(0) if !socket.is_encrypted() => return Err(NbdError::Silent(place)),
            Ok(0) => return Err(NbdError::TlsEnded { place, reason: CLOSED.to_owned() }),
            Ok(_) => {}
            Err(cause) => return Err(broken(place, socket.is_encrypted(), cause)),
        }
    }
}

/// Returns the error for a connection that fails during the handshake.
fn broken(place: String, is_encrypted: bool, cause: io::Error) -> NbdError {
    if !is_encrypted {
        return NbdError::Connect { place, cause };
    }
    let is_cut_off = cause.kind() == ErrorKind::UnexpectedEof;
    let reason = if is_cut_off { CUT_OFF.to_owned() } else { cause.to_string() };
    NbdError::TlsEnded { place, reason }
}

/// Encrypts a connection.
async fn secure(
    socket: Socket,
    tls: Option<&dyn NbdTls>,
    place: &Place,
) -> Result<Socket, NbdError> {
    let (Socket::Tcp(stream), Some(tls), Place::Tcp(host, _)) = (socket, tls, place) else {
        return Err(NbdError::Tls);
    };
    let secured = tls.secure(stream, host).await.map_err(|cause| {
        let (kind, place, reason) = (cause.kind(), place.to_string(), cause.to_string());
        if kind == ErrorKind::InvalidData {
            NbdError::NotTrusted { place, reason }
        } else if kind == ErrorKind::ConnectionAborted {
            NbdError::TlsEnded { place, reason }
        } else if kind == ErrorKind::InvalidInput {
            NbdError::TlsOptions(reason)
        } else {
            NbdError::Connect { place, cause }
        }
    });
    Ok(Socket::Tls(secured?))
}
