//! Which bytes of the destination read as zeros.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi_block_device::{Device, RangeSet};
use tokio::time::timeout;

/// How long the destination may take to tell. Zeros wait for it, data do not.
const ASKING: Duration = Duration::from_secs(5);
/// So many ranges are kept of what it tells.
const MAX_RANGES: usize = 1 << 16;

/// Bytes of the destination that read as zeros, and were not written by this copy.
#[derive(Debug, Default)]
pub(crate) struct Blank {
    known: RangeSet,
    /// The destination was asked, and has not answered yet.
    is_asked: bool,
    /// What is written meanwhile: the answer may be older.
    written: RangeSet,
    /// Zeros to be made, or left alone, as the answer says.
    undecided: RangeSet,
}

impl Blank {
    /// The destination reads as zeros there.
    pub(crate) fn known(known: RangeSet) -> Self {
        Self { known, ..Self::default() }
    }

    /// The destination is asked.
    pub(crate) fn asked() -> Self {
        Self { is_asked: true, ..Self::default() }
    }

    /// Whether zeros may be there.
    pub(crate) fn is_possible(&self) -> bool {
        self.is_asked || !self.known.is_empty()
    }

    /// Whether zeros wait for the answer.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.undecided.is_empty()
    }

    /// A write of these bytes begins. However it goes, they are not as they were.
    pub(crate) fn write(&mut self, range: &Range<u64>) {
        self.known.remove(range);
        if self.is_asked {
            self.written.insert(range.clone());
        }
    }

    /// Where there are zeros in this range, of bytes that shall be zero; `None` if they wait for the
    /// answer.
    pub(crate) fn among(&mut self, range: &Range<u64>) -> Option<RangeSet> {
        if self.is_asked {
            self.undecided.insert(range.clone());
            return None;
        }
        Some(self.known.overlap(range))
    }

    /// The destination has told where it reads as zeros; gives the zeros that have waited for that.
    pub(crate) fn answer(&mut self, mut found: RangeSet) -> RangeSet {
        std::mem::take(&mut self.written).iter().for_each(|range| found.remove(&range));
        (self.known, self.is_asked) = (found, false);
        std::mem::take(&mut self.undecided)
    }
}

/// Which of the first bytes of a device read as zeros, as far as it tells in a moment.
pub(crate) async fn ask(device: Arc<dyn Device>, len: u64) -> RangeSet {
    let mut blank = RangeSet::new();
    let asking = async {
        let mut at = 0;
        while at < len && blank.len() < MAX_RANGES {
            let Ok(extents) = device.extents(at, len - at).await else { return };
            let Some(last) = extents.last() else { return };
            at = last.end();
            let zeros = extents.iter().filter(|extent| extent.state.reads_zeros());
            blank.extend(zeros.map(|extent| extent.offset..extent.end()));
        }
    };
    // What is not known by then is made zero.
    _ = timeout(ASKING, asking).await;
    blank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_nothing_of_what_is_written_meanwhile() {
        let mut blank = Blank::asked();
        blank.write(&(10..20));
        assert_eq!(blank.among(&(15..40)), None);
        assert!(blank.is_waited_for() && blank.is_possible());
        assert_eq!(blank.answer((0..30).into()), (15..40).into());
        assert!(!blank.is_waited_for());
        assert_eq!(blank.among(&(15..40)), Some((20..30).into()));
        blank.write(&(0..25));
        assert_eq!(blank.among(&(15..40)), Some((25..30).into()));
    }
}
