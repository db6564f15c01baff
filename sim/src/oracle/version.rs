//! One write to one place, and what became of it.

use std::fmt;

use super::grain::ZEROS;

/// A moment in the order of all events.
pub(crate) type Moment = u64;

/// A write to a grain.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// What it writes: a number that no other write has, or [`ZEROS`].
    pub(super) content: u64,
    /// Which write it is.
    pub(super) write: usize,
    pub(super) begun: Moment,
    /// When it ended, in whichever way.
    pub(super) ended: Option<Moment>,
    /// When whatever comes later begins to replace it: at its end, but of orphans when the last of them has
    /// come.
    pub(super) settled: Option<Moment>,
    /// It was an orphan at some time.
    pub(super) was_orphan: bool,
    /// The connection was lost that it was sent over, and its server has not finished with that.
    pub(super) is_unanswered: bool,
    pub(super) is_acknowledged: bool,
    /// A flush has vouched for it.
    pub(super) is_durable: bool,
    /// When the unit has crashed last since it began, and before a flush had vouched for it.
    pub(super) crashed: Option<Moment>,
    /// The unit has lost the place since, and all that was there.
    pub(super) is_gone: bool,
    /// When a read ended that had shown that another one came after it.
    pub(super) covered: Option<Moment>,
    /// The handles that were told that writes like this may be lost, one bit for each.
    pub(super) told: u64,
    /// The opened disk that it went through.
    pub(super) disk: usize,
}

impl Version {
    /// What nobody has written, from the beginning on.
    pub(super) const fn first() -> Self {
        Self {
            ended: Some(0),
            settled: Some(0),
            is_acknowledged: true,
            is_durable: true,
            ..Self::begun(ZEROS, 0, 0, 0)
        }
    }

    /// A write that begins.
    pub(super) const fn begun(content: u64, write: usize, begun: Moment, disk: usize) -> Self {
        Self {
            content,
            write,
            begun,
            ended: None,
            settled: None,
            was_orphan: false,
            is_unanswered: false,
            is_acknowledged: false,
            is_durable: false,
            crashed: None,
            is_gone: false,
            covered: None,
            told: 0,
            disk,
        }
    }

    /// Whether it replaces whatever came before.
    pub(super) const fn counts(&self) -> bool {
        self.is_acknowledged && !self.is_gone && (self.is_durable || self.crashed.is_none())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of disk {} from {} to ", self.content, self.disk, self.begun)?;
        match self.ended {
            Some(ended) if self.is_acknowledged => write!(f, "{ended}")?,
            Some(ended) => write!(f, "{ended} (failed)")?,
            None => f.write_str("now")?,
        }
        if self.is_gone {
            return f.write_str(" (gone)");
        }
        match (self.is_durable, self.crashed.is_some()) {
            (true, false) => f.write_str(" (flushed)"),
            (true, true) => f.write_str(" (crashed, and then flushed)"),
            (false, true) => f.write_str(" (crashed)"),
            (false, false) => Ok(()),
        }
    }
}

/// Whether a write is gone for a read that began at a moment, because a later one has replaced it.
pub(super) fn is_replaced(version: &Version, later: &Version, begun: Moment) -> bool {
    let came_after = version.settled.is_some_and(|settled| settled < later.begun);
    came_after && later.counts() && later.ended.is_some_and(|ended| ended < begun)
}
