//! Exports of NBD servers as devices: what qemu-nbd and nbdkit open, and what QEMU has open.

mod advice;
mod connection;
mod connections;
mod conversion;
mod device;
mod dirty_bitmap;
mod handshake;
mod losses;
mod opening;
mod reopening;
mod sameness;
mod silence;
mod socket;
mod standing;
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
pub use uri::NbdUri;

/// The reason why an export cannot be opened, or is lost. The text is the fact alone; [`advice`](Self::advice) says what
/// can be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The URI is none of NBD.
    #[error("{0}")]
    Uri(&'static str),
    /// The text names no dirty bitmap.
    #[error("it names no dirty bitmap")]
    BitmapForm,
    /// The URI asks for TLS.
    #[error("TLS is not supported")]
    Tls,
    /// No connection came about, or it failed before the export was open.
    #[error("{}", no_connection(.place, .cause))]
    Connect {
        /// The address.
        place: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The server does not answer the handshake.
    #[error("the NBD server at {0} does not answer")]
    Silent(String),
    /// The server refuses the export, or has none of that name.
    #[error("{} of the NBD server at {place}: {cause}", export_name(.export))]
    Handshake {
        /// The address.
        place: String,
        /// The name of the export; empty for the default export.
        export: String,
        /// What the server has answered.
        cause: HandshakeError,
    },
    /// The export says that it is longer than anything can be.
    #[error("the NBD server at {place} reports {size} bytes, which is more than a server can have")]
    TooLarge {
        /// The address.
        place: String,
        /// What it says.
        size: u64,
    },
    /// The export has no such dirty bitmap.
    #[error("{0}: the export has no such bitmap")]
    NoBitmap(String),
    /// The server does not report what is marked in a dirty bitmap.
    #[error("{bitmap}: the bitmap cannot be read: {cause}")]
    Bitmap {
        /// Which one.
        bitmap: String,
        /// Why not.
        cause: DeviceError,
    },
    /// The server does not keep to the protocol.
    #[error("the NBD server breaks the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The connection is lost.
    #[error("the connection to the NBD server is lost")]
    Lost,
    /// The server was away for longer than requests wait.
    #[error(
        "the connection to the NBD server is lost ({why}), and the server has not come back within {seconds} s ({last})"
    )]
    Away {
        /// How the connection was lost.
        why: String,
        /// The time that was waited, seconds.
        seconds: u64,
        /// What the last try has met.
        last: String,
    },
    /// The server has come back, and the export is not the one that was opened.
    #[error("the NBD server has come back with another export: {0}")]
    Changed(String),
    /// A connection was lost, and with it perhaps what the server had answered and not flushed; a flush says so.
    #[error("the connection to the NBD server was lost, and with it perhaps what was not flushed")]
    UnflushedWritesLost,
}

/// What a failed connection means, by what the system says.
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

/// An export, by its name.
fn export_name(name: &str) -> String {
    if name.is_empty() { "the default export".to_owned() } else { format!("export {name:?}") }
}
