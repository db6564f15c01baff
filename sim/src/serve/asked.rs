//! Requests of clients to a server.

use std::ops::Range;

use iscsi_nbd::Command;
use tokio::time::Instant;

use crate::oracle::{Moment, Write};
use crate::rng::Rng;

/// Length of the longest request, in grains of 64 bytes.
const MAX_GRAINS: usize = 64 << 10 >> 6;

/// A request that has no response yet.
pub(super) struct Asked {
    pub(super) command: Command,
    pub(super) grains: Range<usize>,
    /// The write, if the request is one.
    pub(super) write: Option<Write>,
    pub(super) begun: Moment,
    pub(super) sent: Instant,
}

/// A request that is to be sent again.
pub(super) struct Again {
    pub(super) command: Command,
    pub(super) grains: Range<usize>,
    pub(super) write: Option<Write>,
}

/// Draws the command of a request.
pub(super) fn draw(rng: &mut Rng) -> Command {
    let fua = rng.percent(10);
    match rng.within(0..100) {
        0..34 => Command::Read { dont_fragment: false },
        34..74 => Command::Write { fua },
        74..80 => Command::WriteZeroes { fua, no_hole: rng.percent(30), fast: false },
        80..84 => Command::Trim { fua },
        84..87 => Command::BlockStatus { one: rng.percent(30) },
        87..89 => Command::Cache,
        _ => Command::Flush,
    }
}

/// Returns whether a command writes zeros; `None` if it does not write.
pub(super) const fn writes(command: Command) -> Option<bool> {
    match command {
        Command::Write { .. } => Some(false),
        Command::WriteZeroes { .. } | Command::Trim { .. } => Some(true),
        Command::Read { .. } | Command::Flush | Command::Cache | Command::BlockStatus { .. } => {
            None
        }
    }
}

/// Returns whether the data of a write is on the medium when the server acknowledges the write.
pub(super) const fn is_durable(command: Command) -> bool {
    matches!(
        command,
        Command::Write { fua: true }
            | Command::WriteZeroes { fua: true, .. }
            | Command::Trim { fua: true }
    )
}

/// Draws a range of whole blocks of `block` grains. A few places are used often.
pub(super) fn draw_grains(rng: &mut Rng, all: usize, block: usize) -> Range<usize> {
    let max = if rng.percent(80) { 64 } else { MAX_GRAINS };
    let len = rng.index(1..max.min(all) + 1).next_multiple_of(block).min(all);
    let last = if rng.percent(60) { all.div_ceil(16) } else { all };
    let start = rng.index(0..last).min(all - len) / block * block;
    start..start + len
}
