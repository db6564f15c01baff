//! Writes that failed after their answer, and who was told (as errseq does for fsync).

use std::fmt;
use std::io;
use std::sync::Arc;

/// The failures so far.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u64,
    last: Option<Arc<io::Error>>,
    /// Somebody was told of the last one.
    is_told: bool,
}

impl Failures {
    pub(super) fn add(&mut self, error: io::Error) {
        self.count += 1;
        (self.last, self.is_told) = (Some(Arc::new(error)), false);
    }

    /// How many a handle that is made now need not tell.
    pub(super) fn told_before_a_new_handle(&self) -> u64 {
        if self.is_told { self.count } else { self.count.saturating_sub(1) }
    }

    /// How many there were, and the last one if a handle that has told so many has to tell of it.
    pub(super) fn tell(&mut self, told: u64) -> (u64, Option<io::Error>) {
        if told >= self.count {
            return (told, None);
        }
        self.is_told = true;
        let last =
            self.last.as_ref().map(|last| io::Error::new(last.kind(), Told(Arc::clone(last))));
        (self.count, last)
    }
}

/// A failure that several are told of.
#[derive(Debug)]
struct Told(Arc<io::Error>);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a write that was answered before has failed: {}", self.0)
    }
}

impl std::error::Error for Told {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}
