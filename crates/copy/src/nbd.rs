//! Exports of NBD servers as devices: what qemu-nbd and nbdkit open, and what QEMU has open.

mod connection;
mod connections;
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

use std::io;

use iscsi_nbd::ProtocolError;
use iscsi_nbd::client::HandshakeError;
use thiserror::Error;

pub use device::NbdDevice;
pub use dirty_bitmap::DirtyBitmap;
pub use uri::NbdUri;

/// The reason why an export cannot be opened, or is lost.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The URI is none of NBD.
    #[error("{0}")]
    Uri(&'static str),
    /// The server does not accept the connection.
    #[error("{place}: {cause}")]
    Connect {
        /// The address.
        place: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The server does not answer the handshake.
    #[error(
        "{0}: the server does not answer; is it one of NBD, and does it take another client (qemu-nbd --shared)?"
    )]
    Silent(String),
    /// The handshake failed, or the server has no such export.
    #[error("{place}: {cause}")]
    Handshake {
        /// The address.
        place: String,
        /// What the server has answered.
        cause: HandshakeError,
    },
    /// The export says that it is longer than anything can be.
    #[error(
        "{place}: the export says that it has {size} bytes, which is more than a server can have"
    )]
    TooLarge {
        /// The address.
        place: String,
        /// What it says.
        size: u64,
    },
    /// The export has no such dirty bitmap.
    #[error(
        "{0}: the export has no such bitmap; QEMU takes its name when it begins to export the node"
    )]
    NoBitmap(String),
    /// The server does not report what is marked in a dirty bitmap.
    #[error("{bitmap}: {cause}")]
    Bitmap {
        /// Which one.
        bitmap: String,
        /// Why not.
        cause: io::Error,
    },
    /// The server does not keep to the protocol.
    #[error("the server breaks the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The connection is lost.
    #[error("the connection to the server is lost")]
    Lost,
    /// The server was away for longer than requests wait.
    #[error(
        "the connection is lost ({why}), and the server has not come back within {seconds} s ({last}); ?patience=SECONDS in the URI waits longer"
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
    #[error("the server has come back with another export: {0}")]
    Changed(String),
    /// A connection was lost, and with it perhaps what the server had answered and not flushed; a flush says so.
    #[error("the connection to the server was lost, and with it perhaps what was not flushed")]
    UnflushedWritesLost,
}
