//! The time limits of tasks, the first of them at hand.
//!
//! Nearly every task has as much time as the one before it, from a later moment on, and ends long before that is up. So
//! its limit goes to the end of a sorted queue, and is thrown away there when it comes to the front. A tree from which each
//! is taken when its task ends took 530 of the 17,400 instructions of a read of 4 KiB among 32.

use std::collections::VecDeque;
use std::time::Instant;

use iscsi_pdu::Itt;

/// So many limits that were lifted may wait in the queue beside as many as there are tasks.
const SLACK: usize = 64;

/// When a task is to have ended.
type Limit = (Instant, Itt);

/// The time limits of tasks in their order, and some that were lifted; the first one counts.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    queue: VecDeque<Limit>,
    /// How many in it were lifted. With none, the first one counts, and its task need not be looked at: among the tasks of
    /// 1,000 sessions no cache has it.
    lifted: usize,
}

impl Deadlines {
    /// A task is to end by then.
    pub(super) fn add(&mut self, deadline: Instant, itt: Itt) {
        if self.queue.back().is_none_or(|(last, _)| *last <= deadline) {
            self.queue.push_back((deadline, itt));
        } else {
            let at = self.queue.partition_point(|(other, _)| *other <= deadline);
            self.queue.insert(at, (deadline, itt));
        }
    }

    /// A task that had another limit is to end by then. It may have had this one before, which waits to be forgotten.
    pub(super) fn change(&mut self, deadline: Instant, itt: Itt) {
        let from = self.queue.partition_point(|(other, _)| *other < deadline);
        let mut equal = self.queue.range(from..).take_while(|(other, _)| *other == deadline);
        if equal.any(|(_, other)| *other == itt) {
            self.lifted -= 1;
        } else {
            self.add(deadline, itt);
        }
    }

    /// This limit was lifted. No more than `tasks` count any more, and `counts` tells which ones do.
    pub(super) fn lift(&mut self, limit: Limit, tasks: usize, counts: impl Fn(&Limit) -> bool) {
        self.lifted += 1;
        if self.queue.front() == Some(&limit) {
            self.forget_first();
        }
        while self.lifted > 0 && self.queue.front().is_some_and(|first| !counts(first)) {
            self.forget_first();
        }
        // Behind a task that takes long, others begin and end all the time.
        if self.lifted > tasks + SLACK {
            self.queue.retain(counts);
            self.lifted = 0;
        }
    }

    fn forget_first(&mut self) {
        self.queue.pop_front();
        self.lifted -= 1;
    }

    /// The first one.
    pub(super) fn first(&self) -> Option<Limit> {
        self.queue.front().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    fn itt(tag: u32) -> Itt {
        Itt::new(tag).unwrap()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant comes from a clock; all later ones are reckoned"
    )]
    fn any_moment() -> Instant {
        Instant::now()
    }

    /// Whatever begins, ends, and is put off or brought forward, in whatever order, the first is that of an ordered set.
    #[test]
    fn the_first_is_that_of_all_that_count() {
        let start = any_moment();
        let (mut deadlines, mut set) = (Deadlines::default(), BTreeSet::new());
        let mut random = 1_u32;
        for tag in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let steps = if random >> 30 == 0 { random >> 20 & 0xff } else { tag / 4 };
            let limit = (start + Duration::from_millis(steps.into()), itt(tag));
            deadlines.add(limit.0, limit.1);
            set.insert(limit);
            for _ in 0..random >> 8 & 3 {
                let old = *set.iter().nth(random as usize % set.len()).unwrap();
                // Mostly one that it had before.
                let other = start + Duration::from_millis((old.1.get() % 8 + random % 2).into());
                if other != old.0 {
                    set.remove(&old);
                    set.insert((other, old.1));
                    deadlines.change(other, old.1);
                    deadlines.lift(old, set.len(), |limit| set.contains(limit));
                }
                random = random.rotate_left(7);
            }
            while set.len() > 40 {
                let ended = *set.iter().nth(random as usize % set.len()).unwrap();
                set.remove(&ended);
                deadlines.lift(ended, set.len(), |limit| set.contains(limit));
            }
            let [first, expected] = [deadlines.first(), set.first().copied()];
            assert_eq!(first.map(|(deadline, _)| deadline), expected.map(|(deadline, _)| deadline));
            assert!(first.is_none_or(|first| set.contains(&first)));
            assert_eq!(deadlines.queue.len() - deadlines.lifted, set.len());
        }
        while let Some(ended) = set.pop_last() {
            deadlines.lift(ended, set.len(), |limit| set.contains(limit));
        }
        assert_eq!((deadlines.first(), deadlines.queue.len()), (None, 0));
    }

    #[test]
    fn what_waits_behind_a_long_one_does_not_pile_up() {
        let start = any_moment();
        let mut deadlines = Deadlines::default();
        deadlines.add(start, itt(0));
        for tag in 1..10_000 {
            let limit = (start + Duration::from_millis(tag.into()), itt(tag));
            deadlines.add(limit.0, limit.1);
            deadlines.lift(limit, 1, |(_, itt)| itt.get() == 0);
            assert!(deadlines.queue.len() <= 2 + SLACK);
            assert_eq!(deadlines.first(), Some((start, itt(0))));
        }
    }
}
