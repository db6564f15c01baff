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

/// The time limits of tasks in their order, of equal ones as they came, and some that were lifted; the first one counts.
#[derive(Debug, Default)]
pub(super) struct Deadlines(VecDeque<Limit>);

impl Deadlines {
    /// A task is to end by then.
    pub(super) fn add(&mut self, deadline: Instant, itt: Itt) {
        if self.0.back().is_none_or(|(last, _)| *last <= deadline) {
            self.0.push_back((deadline, itt));
        } else {
            let at = self.0.partition_point(|(other, _)| *other <= deadline);
            self.0.insert(at, (deadline, itt));
        }
    }

    /// Limits may have been lifted, of which there are no more than `tasks` left: `counts` tells which ones these are.
    pub(super) fn lifted(&mut self, tasks: usize, counts: impl Fn(&Limit) -> bool) {
        while self.0.front().is_some_and(|limit| !counts(limit)) {
            self.0.pop_front();
        }
        // Behind a task that takes long, others begin and end all the time.
        if self.0.len() > 2 * tasks + SLACK {
            self.0.retain(counts);
        }
    }

    /// The first one.
    pub(super) fn first(&self) -> Option<Limit> {
        self.0.front().copied()
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

    /// Whatever begins and ends, and in whatever order, the first is that of an ordered set.
    #[test]
    fn the_first_is_that_of_all_that_count() {
        let start = any_moment();
        let (mut deadlines, mut set) = (Deadlines::default(), BTreeSet::new());
        let mut random = 1_u32;
        for tag in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let steps = if random >> 30 == 0 { random >> 20 & 0xff } else { tag / 4 };
            let limit = (start + Duration::from_millis(steps.into()), itt(random >> 8 & 0xfff));
            deadlines.add(limit.0, limit.1);
            set.insert(limit);
            while set.len() > 40 {
                let at = random as usize % set.len();
                let ended = *set.iter().nth(at).unwrap();
                set.remove(&ended);
                deadlines.lifted(set.len(), |limit| set.contains(limit));
            }
            let [first, expected] = [deadlines.first(), set.first().copied()];
            assert_eq!(first.map(|(deadline, _)| deadline), expected.map(|(deadline, _)| deadline));
            assert!(first.is_none_or(|first| set.contains(&first)));
        }
        set.clear();
        deadlines.lifted(0, |limit| set.contains(limit));
        assert_eq!(deadlines.first(), None);
    }

    #[test]
    fn what_waits_behind_a_long_one_does_not_pile_up() {
        let start = any_moment();
        let mut deadlines = Deadlines::default();
        deadlines.add(start, itt(0));
        for tag in 1..10_000 {
            deadlines.add(start + Duration::from_millis(tag.into()), itt(tag));
            deadlines.lifted(1, |(_, itt)| itt.get() == 0);
            assert!(deadlines.0.len() <= 2 + SLACK);
            assert_eq!(deadlines.first(), Some((start, itt(0))));
        }
    }
}
