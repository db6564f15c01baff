//! How often a unit has told that something about it has changed.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of times that a unit has told so, or may have, over all sessions of a disk.
///
/// A unit tells each session once, at its next command (SAM-5 §5.14). So what ends without a status, and a
/// session that is gone, may have been told, or would have been: they count as well.
#[derive(Debug, Default)]
pub(crate) struct Attentions(AtomicU64);

impl Attentions {
    /// The unit has told, or may have. To be counted before the command's caller hears of its end.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
