//! Tracks the present size of a unit, which may grow and shrink while it is used (SBC-3 §4.7).

/// Capacity of the unit, over all paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Number of the last READ CAPACITY that was sent (`asked`), and of the last one whose result was used
    /// (`answered`).
    asked: u64,
    answered: u64,
    /// Present capacity (`now`), and the largest capacity that the unit ever had (`most`), in bytes.
    now: u64,
    most: u64,
}

/// Identifies a READ CAPACITY command. Sessions may respond out of order, so a result is ignored if that of a later
/// command was used before.
#[derive(Clone, Copy, Debug)]
pub struct SizeQuestion(u64);

/// A change of the capacity of a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resized {
    /// Capacity before the change, in bytes.
    pub before: u64,
    /// Present capacity, in bytes.
    pub now: u64,
}

/// Error of a range that does not lie on the unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RangeError {
    /// The range ends beyond the end of the unit, but lay on the unit before the unit shrank.
    #[error("the unit has shrunk from {before} to {now} bytes")]
    Shrunk {
        /// Largest size that the unit has had, in bytes.
        before: u64,
        /// Size of the unit, in bytes.
        now: u64,
    },
    /// The range ends beyond every size that the unit has had.
    #[error("the range ends beyond the {capacity} bytes of the unit")]
    Beyond {
        /// Size of the unit, in bytes.
        capacity: u64,
    },
}

impl Size {
    /// Sets the first capacity that the unit has reported, in bytes.
    pub(super) const fn begin(&mut self, bytes: u64) {
        self.now = bytes;
        self.most = bytes;
    }

    pub(super) const fn ask(&mut self) -> SizeQuestion {
        self.asked += 1;
        SizeQuestion(self.asked)
    }

    pub(super) fn answer(&mut self, question: SizeQuestion, bytes: u64) -> Option<Resized> {
        if question.0 < self.answered {
            return None;
        }
        self.answered = question.0;
        let before = std::mem::replace(&mut self.now, bytes);
        self.most = self.most.max(bytes);
        (before != bytes).then_some(Resized { before, now: bytes })
    }

    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    pub(super) const fn check(&self, offset: u64, len: u64) -> Result<(), RangeError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.now => Ok(()),
            Some(end) if end <= self.most => {
                Err(RangeError::Shrunk { before: self.most, now: self.now })
            }
            Some(_) | None => Err(RangeError::Beyond { capacity: self.now }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64) -> Size {
        let mut size = Size::default();
        size.begin(bytes);
        size
    }

    #[test]
    fn a_range_that_was_there_once_differs_from_one_that_never_was() {
        let mut size = size(4096);
        assert_eq!(size.check(3584, 512), Ok(()));
        assert_eq!(size.check(3584, 513), Err(RangeError::Beyond { capacity: 4096 }));
        let question = size.ask();
        assert_eq!(size.answer(question, 2048), Some(Resized { before: 4096, now: 2048 }));
        assert_eq!(size.check(0, 2048), Ok(()));
        assert_eq!(size.check(2048, 1), Err(RangeError::Shrunk { before: 4096, now: 2048 }));
        assert_eq!(size.check(4096, 1), Err(RangeError::Beyond { capacity: 2048 }));
        assert_eq!(size.check(u64::MAX, 2), Err(RangeError::Beyond { capacity: 2048 }));
        let question = size.ask();
        assert_eq!(size.answer(question, 4608), Some(Resized { before: 2048, now: 4608 }));
        assert_eq!(size.check(4096, 512), Ok(()));
    }

    #[test]
    fn an_answer_to_an_earlier_question_comes_too_late() {
        let mut size = size(4096);
        let (early, late) = (size.ask(), size.ask());
        assert_eq!(size.answer(late, 4608), Some(Resized { before: 4096, now: 4608 }));
        assert_eq!(size.answer(early, 4096), None);
        assert_eq!(size.now(), 4608);
    }
}
