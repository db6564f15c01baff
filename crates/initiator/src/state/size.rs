//! How many blocks a unit has by now: it may grow and shrink while a disk is open (SBC-3 §4.7).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::state::capacity::Capacity;

/// What is known of that, over all sessions of a disk.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Size {
    questions: Mutex<Questions>,
    /// The most that it ever had since the disk was opened, bytes.
    most: AtomicU64,
    /// As the unit has told since then, bytes; [`UNTOLD`] as long as that is what it told first. Every request looks at it,
    /// without the lock, under which it is written. So it comes last, beside what each looks at as well.
    now: AtomicU64,
}

/// A unit that has so many bytes counts as one that has one less.
const UNTOLD: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Questions {
    /// Questions that were sent, and the latest of them that was answered.
    asked: u64,
    answered: u64,
}

/// A question for the capacity: it counts in the order in which they were sent, since one session may answer
/// later than another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeQuestion(u64);

impl Size {
    /// A question is about to be sent.
    pub(crate) fn ask(&self) -> SizeQuestion {
        let mut questions = self.lock();
        questions.asked += 1;
        SizeQuestion(questions.asked)
    }

    /// Takes in an answer, where no later question has been answered yet. `first` is what the unit told when
    /// the disk was opened. Gives the bytes of before and of now, if they differ.
    pub(crate) fn learn(
        &self,
        question: SizeQuestion,
        first: &Capacity,
        found: &Capacity,
    ) -> Option<(u64, u64)> {
        let mut questions = self.lock();
        if question.0 < questions.answered {
            return None;
        }
        questions.answered = question.0;
        let (before, now) = (self.bytes(first), found.bytes().min(UNTOLD - 1));
        self.most.fetch_max(before.max(now), Ordering::SeqCst);
        self.now.store(now, Ordering::SeqCst);
        (before != now).then_some((before, now))
    }

    /// The bytes that the unit has now.
    pub(crate) fn bytes(&self, first: &Capacity) -> u64 {
        match self.now.load(Ordering::SeqCst) {
            UNTOLD => first.bytes(),
            now => now,
        }
    }

    /// Whether a range lies on the unit.
    ///
    /// # Errors
    /// [`Error::CapacityChanged`] where it did once, and [`Error::OutOfRange`] where it never did.
    pub(crate) fn check(&self, first: &Capacity, offset: u64, len: u64) -> Result<(), Error> {
        let end = offset.checked_add(len);
        if end.is_some_and(|end| end <= self.bytes(first)) {
            return Ok(());
        }
        // Both at one moment.
        let (now, most) = {
            let _questions = self.lock();
            let now = self.bytes(first);
            (now, self.most.load(Ordering::SeqCst).max(now))
        };
        match end {
            Some(end) if end <= now => Ok(()),
            Some(end) if end <= most => Err(Error::CapacityChanged { before: most, now }),
            Some(_) | None => Err(Error::OutOfRange { offset, len, capacity: now }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Size {
    fn default() -> Self {
        Self { now: AtomicU64::new(UNTOLD), most: AtomicU64::new(0), questions: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::ReadCapacity10;

    use super::*;

    fn capacity(blocks: u8) -> Capacity {
        let answer = ReadCapacity10::decode(&[0, 0, 0, blocks - 1, 0, 0, 2, 0]).unwrap();
        Capacity::counted_by(answer).unwrap()
    }

    #[test]
    fn a_range_that_was_there_once_is_told_from_one_that_never_was() {
        let (size, first) = (Size::default(), capacity(8));
        assert_eq!(size.bytes(&first), 8 * 512);
        assert!(size.check(&first, 7 * 512, 512).is_ok());
        assert!(matches!(size.check(&first, 7 * 512, 513), Err(Error::OutOfRange { .. })));
        let question = size.ask();
        assert_eq!(size.learn(question, &first, &capacity(4)), Some((8 * 512, 4 * 512)));
        assert!(size.check(&first, 0, 4 * 512).is_ok());
        let gone = size.check(&first, 4 * 512, 1);
        assert!(matches!(gone, Err(Error::CapacityChanged { before: 4096, now: 2048 })));
        assert!(matches!(size.check(&first, 8 * 512, 1), Err(Error::OutOfRange { .. })));
        assert!(matches!(size.check(&first, u64::MAX, 2), Err(Error::OutOfRange { .. })));
        let question = size.ask();
        assert_eq!(size.learn(question, &first, &capacity(9)), Some((4 * 512, 9 * 512)));
        assert!(size.check(&first, 8 * 512, 512).is_ok());
    }

    #[test]
    fn an_answer_to_an_earlier_question_comes_too_late() {
        let (size, first) = (Size::default(), capacity(8));
        let (early, late) = (size.ask(), size.ask());
        assert_eq!(size.learn(late, &first, &capacity(9)), Some((8 * 512, 9 * 512)));
        assert_eq!(size.learn(early, &first, &capacity(8)), None);
        assert_eq!(size.bytes(&first), 9 * 512);
    }
}
