//! Where two ends differ.

use std::fmt;

/// Where two ends differ first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Difference {
    /// At this byte.
    At(u64),
    /// Somewhere in these bytes: the source cannot tell any more.
    Within {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        len: usize,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(offset) => {
                write!(f, "the destination differs from the source at byte {offset}")
            }
            Self::Within { offset, len } => write!(
                f,
                "the destination differs from what was written in the {len} bytes at byte {offset}"
            ),
        }
    }
}
