//! How many sessions a disk shall have.

/// How many sessions a [`Disk`](crate::Disk) shall have with its unit.
///
/// Several sessions have several TCP connections: where one stops at its windows or at loss, more
/// carry more. Each has a command window of its own, and nothing on one waits for what was lost on
/// another. What they may have under way is bounded together
/// ([`Options::max_bytes_in_flight`](crate::Options)).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Sessions {
    /// As many as the link needs: at first by the tuner's plan, then more as long as the total
    /// rises, and fewer when that changes nothing; at most so many, 1 to
    /// [`MAX_FIXED`](Self::MAX_FIXED).
    Auto {
        /// The most sessions at once.
        max: u32,
    },
    /// So many, 1 to [`MAX_FIXED`](Self::MAX_FIXED); what is beyond counts as that.
    Fixed(u32),
}

impl Sessions {
    /// By itself a disk takes no more; and no more than 32 but where loss keeps each of them small.
    pub const MAX: u32 = 64;

    /// The most that can be asked for.
    pub const MAX_FIXED: u32 = 1024;

    /// The most sessions at once.
    #[must_use]
    pub const fn max(self) -> u32 {
        let (Self::Auto { max: count } | Self::Fixed(count)) = self;
        match count {
            0 => 1,
            Self::MAX_FIXED.. => Self::MAX_FIXED,
            count => count,
        }
    }

    /// The same with a number that can be.
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
