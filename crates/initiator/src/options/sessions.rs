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
    /// rises, and fewer when that changes nothing; at most so many, 1 or more.
    Auto {
        /// The most sessions at once.
        most: u32,
    },
    /// So many, 1 or more.
    Fixed(u32),
}

impl Sessions {
    /// By itself a disk takes no more; and no more than 32 but where loss keeps each of them small.
    pub const MOST: u32 = 64;

    /// The most sessions at once.
    #[must_use]
    pub const fn most(self) -> u32 {
        let (Self::Auto { most: count } | Self::Fixed(count)) = self;
        if count == 0 { 1 } else { count }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::Auto { most: Self::MOST }
    }
}
