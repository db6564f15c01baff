//! Exports of NBD servers as devices: images that qemu-nbd or nbdkit serve, and disks of a running QEMU.

mod advice;
mod connection;
mod connections;
mod conversion;
mod device;
mod dirty_bitmap;
mod handshake;
mod link_state;
mod losses;
mod opening;
mod reopening;
mod sameness;
mod silence;
mod socket;
mod tls;
mod uri;
mod writes;

use std::io::{self, ErrorKind};

use iscsi_block_device::DeviceError;
use iscsi_nbd::ProtocolError;
use iscsi_nbd::client::HandshakeError;
use thiserror::Error;

pub use advice::NbdAdvice;
pub use device::NbdDevice;
pub use dirty_bitmap::DirtyBitmap;
pub use tls::{NbdStream, NbdTls};
pub use uri::NbdUri;

/// Reasons why an export cannot be opened, or is lost. The text states the fact; [`advice`](Self::advice)
/// says what can be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The URI is not a valid NBD URI.
    #[error("{0}")]
    Uri(&'static str),
    /// The text is not the URI of an export with the name of a dirty bitmap.
    #[error("it names no dirty bitmap")]
    BitmapForm,
    /// The URI asks for TLS, and nothing encrypts its connections ([`NbdUri::with_tls`]).
    #[error("the URI asks for TLS, but this program provides none")]
    Tls,
    /// The options that the URI gives for TLS cannot be used.
    #[error("TLS cannot be used: {0}")]
    TlsOptions(String),
    /// The server does not prove to be the one that the URI names.
    #[error("the NBD server at {place} is not trusted: {reason}")]
    NotTrusted {
        /// Address of the server.
        place: String,
        /// Reason, in the words of the TLS library.
        reason: String,
    },
    /// The connection was encrypted, and the server has ended it before the export was open.
    #[error("the NBD server at {place} has ended the encrypted connection: {reason}")]
    TlsEnded {
        /// Address of the server.
        place: String,
        /// Reason, in the words of the TLS library.
        reason: String,
    },
    /// No connection was made, or it failed before the export was open.
    #[error("{}", no_connection(.place, .cause))]
    Connect {
        /// Address of the server.
        place: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// The server closed the connection during the handshake, or did not complete the handshake in time.
    #[error("the NBD server at {0} does not answer")]
    Silent(String),
    /// The server refuses the export, or has no export of that name.
    #[error("{} of the NBD server at {place}: {cause}", export_name(.export))]
    Handshake {
        /// Address of the server.
        place: String,
        /// Name of the export; empty for the default export.
        export: String,
        /// Reason for the end of the handshake.
        cause: HandshakeError,
    },
    /// The server reports a size of 2^63 bytes or more for the export.
    #[error("the NBD server at {place} reports {size} bytes, which is more than a server can have")]
    TooLarge {
        /// Address of the server.
        place: String,
        /// Reported size, in bytes.
        size: u64,
    },
    /// The export has no such dirty bitmap.
    #[error("{0}: the export has no such bitmap")]
    NoBitmap(String),
    /// The server did not report which ranges a dirty bitmap marks.
    #[error("{bitmap}: the bitmap cannot be read: {cause}")]
    Bitmap {
        /// The bitmap: URI of its export, and its name.
        bitmap: String,
        /// Error of the request.
        cause: DeviceError,
    },
    /// The server violates the NBD protocol.
    #[error("the NBD server breaks the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The connection to the server is lost.
    #[error("the connection to the NBD server is lost")]
    Lost,
    /// The connection to the server is lost, and could not be made again within the time that requests wait.
    #[error(
        "the connection to the NBD server is lost ({why}), and the server has not come back within {seconds} s ({last})"
    )]
    Away {
        /// Reason for the loss of the connection.
        why: String,
        /// Time that requests have waited, in seconds.
        seconds: u64,
        /// Error of the last attempt to reconnect.
        last: String,
    },
    /// The connection was made again, and the export is not the one that was opened.
    #[error("the NBD server has come back with another export: {0}")]
    Changed(String),
    /// A connection was lost, and perhaps writes that the server had answered and not flushed. A flush
    /// reports this, once for each handle.
    #[error("the connection to the NBD server was lost, and with it perhaps what was not flushed")]
    UnflushedWritesLost,
}

/// Describes a failed connection attempt by the error of the system.
fn no_connection(place: &str, cause: &io::Error) -> String {
    let kind = cause.kind();
    if kind == ErrorKind::ConnectionRefused {
        return format!("no NBD server listens at {place}");
    }
    if kind == ErrorKind::NotFound {
        return format!("no NBD server listens at {place}: there is no such socket");
    }
    if matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) {
        return format!(
            "the NBD server at {place} closed the connection before the export was open"
        );
    }
    format!("cannot connect to the NBD server at {place}: {cause}")
}

/// Describes an export by its name.
fn export_name(name: &str) -> String {
    if name.is_empty() { "the default export".to_owned() } else { format!("export {name:?}") }
}
