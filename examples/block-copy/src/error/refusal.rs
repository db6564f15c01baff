//! Reasons not to begin a copy: it could overwrite data by mistake, or the bytes of its source are not those of
//! a disk.

use std::sync::Arc;

use thiserror::Error as ThisError;

use crate::side::Side;

/// Reasons why a copy does not begin. Nothing was written.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Refusal {
    /// The name looks like a URL, so it is not used as the name of a file.
    #[error("{side}: what begins with \"{word}:\" is no path{}; a file of that name is written with ./ before it", spelling(.instead.as_deref()))]
    LikeUrl {
        /// The side of the copy.
        side: Side,
        /// The word before the colon.
        word: String,
        /// The name that was probably meant.
        instead: Option<String>,
    },
    /// The source is an image of a disk in a format such as qcow2, so its bytes are not those of the disk.
    #[error(
        "source {name}: it is {what}, so its bytes are not those of the disk; {remedy}; --format raw copies it as it is"
    )]
    Contained {
        /// Name of the source.
        name: Arc<str>,
        /// Format of the source, such as "a qcow2 image".
        what: &'static str,
        /// The alternative for the user.
        remedy: String,
    },
    /// The source has 0 bytes.
    #[error("source {0}: it is empty; nothing was written")]
    Empty(Arc<str>),
    /// The destination must be blank, and is not.
    #[error(
        "destination {name}: it is not blank: {held}; choose another one, or leave --if-blank out to overwrite it"
    )]
    NotBlank {
        /// Name of the destination.
        name: Arc<str>,
        /// Content of the destination, as a part of the message.
        held: String,
    },
    /// A unit of the destination does not support persistent reservations.
    #[error("destination: a unit has no persistent reservations; leave --exclusive out")]
    NoReservations,
    /// Standard output is closed or discarded, so the data would be lost.
    #[error("destination standard output: it is closed; name /dev/null to read the source only")]
    Nowhere,
    /// The requested congestion control is not available, or not permitted.
    #[error("--congestion: {0}")]
    Congestion(String),
}

fn spelling(instead: Option<&str>) -> String {
    instead.map_or_else(String::new, |instead| format!("; write {instead}"))
}
