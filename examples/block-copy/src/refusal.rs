//! Why a copy is not begun that could overwrite what nobody meant, or copy what is no disk.

use std::sync::Arc;

use thiserror::Error as ThisError;

use crate::side::Side;

/// Reasons why a copy does not begin. Nothing was written.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Refusal {
    /// The name looks like a URL, so it is not taken for a file.
    #[error("{side}: what begins with \"{word}:\" is no path{}; a file of that name is written with ./ before it", spelling(.instead.as_deref()))]
    LikeUrl {
        /// Which end.
        side: Side,
        /// The word before the colon.
        word: String,
        /// The name that was probably meant.
        instead: Option<String>,
    },
    /// The bytes of the source are not those of the disk that is meant.
    #[error(
        "source {name}: it is {what}, so its bytes are not those of the disk; {remedy}; --format raw copies it as it is"
    )]
    Contained {
        /// The name.
        name: Arc<str>,
        /// Its kind, as "a qcow2 image".
        what: &'static str,
        /// The remedy.
        remedy: String,
    },
    /// The source has not a single byte.
    #[error("source {0}: it is empty; nothing was written")]
    Empty(Arc<str>),
    /// The destination must be blank, and is not.
    #[error(
        "destination {name}: it is not blank: {held}; choose another one, or leave --if-blank out to overwrite it"
    )]
    NotBlank {
        /// The name.
        name: Arc<str>,
        /// The contents.
        held: String,
    },
    /// The units of the destination cannot be reserved.
    #[error("destination: a unit has no persistent reservations; leave --exclusive out")]
    NoReservations,
    /// Standard output is closed or discarded, so the data would be lost.
    #[error("destination standard output: it is closed; name /dev/null to read the source only")]
    Nowhere,
    /// The congestion control that was asked for is not there, or not permitted.
    #[error("--congestion: {0}")]
    Congestion(String),
}

impl Refusal {
    /// The exit status that stands for it: 2 for a wrong command line, else 1.
    pub(crate) const fn status(&self) -> u8 {
        match self {
            Self::LikeUrl { .. } | Self::Congestion(_) => 2,
            Self::Contained { .. }
            | Self::Empty(_)
            | Self::NotBlank { .. }
            | Self::NoReservations
            | Self::Nowhere => 1,
        }
    }
}

fn spelling(instead: Option<&str>) -> String {
    instead.map_or_else(String::new, |instead| format!("; write {instead}"))
}
