//! A write to one grain, and its state.

use std::fmt;

use super::grain::ZEROS;

/// A position in the order of all events.
pub(crate) type Moment = u64;

/// A write to a grain.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// Content of the grain: a number that identifies the write, or [`ZEROS`].
    pub(super) content: u64,
    /// Number of the write.
    pub(super) write: usize,
    pub(super) begun: Moment,
    /// When the write ended, successfully or not.
    pub(super) ended: Option<Moment>,
    /// When the write ended; for an orphan, when the last orphan was executed. Writes that begin later
    /// replace this one.
    pub(super) settled: Option<Moment>,
    /// Whether the write was an orphan at any time: its process died while the write was in flight.
    pub(super) was_orphan: bool,
    /// Whether the connection of the write was lost, and the server has not finished with that connection.
    pub(super) is_unanswered: bool,
    pub(super) is_acknowledged: bool,
    /// Whether a flush has covered the write.
    pub(super) is_durable: bool,
    /// When the unit last crashed after this write began and before a flush covered it.
    pub(super) crashed: Option<Moment>,
    /// Whether the unit has shrunk below this place since, so that the data is lost.
    pub(super) is_gone: bool,
    /// When a read ended that had returned a later write to the same place.
    pub(super) covered: Option<Moment>,
    /// Handles that have reported a possible loss of this write, one bit for each.
    pub(super) reported: u64,
    /// The opened disk that the write went through.
    pub(super) disk: usize,
}

impl Version {
    /// Returns the initial content of a grain, which no write has put there.
    pub(super) const fn first() -> Self {
        Self {
            ended: Some(0),
            settled: Some(0),
            is_acknowledged: true,
            is_durable: true,
            ..Self::begun(ZEROS, 0, 0, 0)
        }
    }

    /// Returns a write that begins at `begun`.
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
            reported: 0,
            disk,
        }
    }

    /// Returns whether this write replaces all earlier writes.
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

/// Returns whether a read that began at `begun` cannot return a write, because a later one has replaced it.
pub(super) fn is_replaced(version: &Version, later: &Version, begun: Moment) -> bool {
    let came_after = version.settled.is_some_and(|settled| settled < later.begun);
    came_after && later.counts() && later.ended.is_some_and(|ended| ended < begun)
}
