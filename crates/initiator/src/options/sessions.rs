//! Defines the number of sessions of a disk.

/// Number of sessions of a [`Disk`](crate::Disk) with its unit.
///
/// Each session has its own TCP connection. If one connection is limited by its windows or by loss, several
/// connections carry more. Each session has its own command window, and no session waits for data that was
/// lost on another one. [`Options::with_max_bytes_in_flight`](crate::Options) limits the bytes in flight of
/// all sessions together.
#[doc(alias("multipath", "paths"))]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Sessions {
    /// Chooses the number that the link needs: first by the tuner's plan, then more sessions as long as the
    /// total rate rises, and fewer if that does not reduce the rate.
    Auto {
        /// Maximum number of concurrent sessions, 1 to [`MAX_FIXED`](Self::MAX_FIXED).
        max: u32,
    },
    /// Opens this number of sessions, 1 to [`MAX_FIXED`](Self::MAX_FIXED); a larger number counts as
    /// [`MAX_FIXED`](Self::MAX_FIXED).
    Fixed(u32),
}

impl Sessions {
    /// Default limit of [`Auto`](Self::Auto). A disk goes beyond 32 only if loss keeps each session
    /// slow.
    pub const MAX: u32 = 64;

    /// Maximum number of sessions of a disk.
    pub const MAX_FIXED: u32 = 1024;

    /// Returns the maximum number of concurrent sessions that the value allows.
    #[must_use]
    pub const fn max(self) -> u32 {
        let (Self::Auto { max: count } | Self::Fixed(count)) = self;
        match count {
            0 => 1,
            Self::MAX_FIXED.. => Self::MAX_FIXED,
            count => count,
        }
    }

    /// Returns the value with its number within its range.
    pub(crate) const fn in_range(self) -> Self {
        match self {
            Self::Auto { .. } => Self::Auto { max: self.max() },
            Self::Fixed(_) => Self::Fixed(self.max()),
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::Auto { max: Self::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_cannot_be_counts_as_the_next_that_can() {
        for (asked, max) in [(0, 1), (1, 1), (1024, 1024), (1025, 1024), (u32::MAX, 1024)] {
            assert_eq!(Sessions::Fixed(asked).in_range(), Sessions::Fixed(max));
            assert_eq!(Sessions::Auto { max: asked }.in_range(), Sessions::Auto { max });
        }
    }
}
