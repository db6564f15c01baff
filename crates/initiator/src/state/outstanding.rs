//! Which commands of a session a unit has not answered yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::state::waiters::Waiters;

/// The commands of one session with a unit whose status is not known, in the order in which they were
/// sent.
///
/// A unit reports a condition once, to the first command that comes after it (SAM-5 §5.14). Where
/// statuses come in another order than the commands went, over several connections for one, a good
/// status says nothing of what the unit has told before as long as an earlier command is unanswered.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// Held from the number to the sending: one that cannot be sent ends at once.
    order: Mutex<()>,
    commands: Mutex<Commands>,
    answered: Notify,
    /// Those who wait for some of them to end.
    waiters: Waiters,
}

#[derive(Debug, Default)]
struct Commands {
    /// The first that has not ended.
    first: u64,
    /// The number of the next that is sent.
    next: u64,
    /// Which of those behind the first have ended, up to the last that has; empty while they end in their order.
    ended: VecDeque<bool>,
}

/// The place of a command among those of its session with the unit.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct CommandNumber(u64);

impl Outstanding {
    /// Numbers a command and sends it; no other one is sent in between.
    pub(crate) fn send<T>(&self, send: impl FnOnce(CommandNumber) -> T) -> (CommandNumber, T) {
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.lock().next();
        (number, send(number))
    }

    /// The number of the next command: all that were sent so far come before it.
    pub(crate) fn next(&self) -> CommandNumber {
        CommandNumber(self.lock().next)
    }

    /// Whether every command that was sent has ended.
    pub(crate) fn are_none(&self) -> bool {
        let commands = self.lock();
        commands.first == commands.next
    }

    /// A command has its status, or will never have one.
    pub(crate) fn end(&self, number: CommandNumber) {
        self.lock().end(number);
        // Hardly anybody waits, and to tell nobody takes a lock as well.
        if self.waiters.are_any() {
            self.answered.notify_waiters();
        }
    }

    /// Waits until all have ended that were sent before this one.
    pub(crate) async fn ended_before(&self, number: CommandNumber) {
        let _waiting = self.waiters.join();
        loop {
            // What is answered from here on is noticed.
            let answered = self.answered.notified();
            if self.lock().first >= number.0 {
                return;
            }
            answered.await;
        }
    }

    /// Nobody waits any more for those that were sent before this one and have not ended.
    pub(crate) fn give_up_before(&self, number: CommandNumber) {
        let mut commands = self.lock();
        (commands.first..number.0).for_each(|earlier| commands.end(CommandNumber(earlier)));
        drop(commands);
        if self.waiters.are_any() {
            self.answered.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Commands {
    fn next(&mut self) -> CommandNumber {
        let number = CommandNumber(self.next);
        self.next += 1;
        number
    }

    fn end(&mut self, number: CommandNumber) {
        if !(self.first..self.next).contains(&number.0) {
            return;
        }
        if number.0 == self.first {
            self.first += 1;
            while self.ended.pop_front() == Some(true) {
                self.first += 1;
            }
        } else if let Ok(place) = usize::try_from(number.0 - self.first) {
            let len = self.ended.len().max(place);
            self.ended.resize(len, false);
            if let Some(ended) = self.ended.get_mut(place - 1) {
                *ended = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_waits_for_those_that_were_sent_before_and_for_no_other() {
        let outstanding = Outstanding::default();
        let [first, second, third, fourth] = [(); 4].map(|()| outstanding.send(|_| ()).0);
        outstanding.end(third);
        let mut before = pin!(outstanding.ended_before(third));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        outstanding.end(second);
        assert!(before.as_mut().poll(&mut context).is_pending());
        outstanding.end(first);
        assert!(before.as_mut().poll(&mut context).is_ready());
        outstanding.give_up_before(fourth);
        outstanding.end(first);
        assert!(pin!(outstanding.ended_before(fourth)).poll(&mut context).is_ready());
        let next = outstanding.send(|number| number);
        assert_eq!(next.0, next.1);
        assert!(next.0 > fourth);
    }

    #[test]
    fn who_waits_for_those_that_are_given_up_is_woken() {
        let outstanding = Outstanding::default();
        let [_, second, third] = [(); 3].map(|()| outstanding.send(|_| ()).0);
        let mut before = pin!(outstanding.ended_before(third));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        outstanding.give_up_before(second);
        assert!(before.as_mut().poll(&mut context).is_pending(), "the second has not ended");
        outstanding.give_up_before(third);
        assert!(before.as_mut().poll(&mut context).is_ready());
    }

    proptest! {
        /// In whatever order they end, some of them twice, the first is the lowest that has not ended.
        #[test]
        fn the_first_is_that_of_all_that_have_not_ended(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let (mut commands, mut under_way) = (Commands::default(), BTreeSet::new());
            for (sends, which) in steps {
                if sends {
                    under_way.insert(commands.next());
                } else if commands.next > 0 {
                    let number = CommandNumber(which.index(usize::try_from(commands.next)?) as u64);
                    under_way.remove(&number);
                    commands.end(number);
                }
                let first = under_way.first().map_or(commands.next, |first| first.0);
                prop_assert_eq!(commands.first, first);
            }
            prop_assert!(commands.ended.len() as u64 <= commands.next - commands.first);
        }
    }

    #[test]
    fn what_ends_in_order_takes_no_memory() {
        let mut commands = Commands::default();
        for _ in 0..100 {
            let under_way = [(); 4].map(|()| commands.next());
            under_way.into_iter().for_each(|number| commands.end(number));
        }
        assert_eq!((commands.first, commands.ended.capacity()), (400, 0));
    }
}
