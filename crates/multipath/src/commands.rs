//! Commands of a path whose status has not arrived.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The commands of one path whose status is not known, in the order in which they were sent.
///
/// A unit reports a condition once, with the first command after it (SAM-5 §5.14). Statuses may arrive in
/// another order than the commands were sent, for example over several connections. Then a status GOOD does
/// not exclude an earlier report that is still on its way with an earlier command. So a flush ends only when
/// all commands have ended that its session sent before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    /// Number of the first command that has not ended.
    first: u64,
    /// Number of the next command that is sent.
    next: u64,
    /// Whether each command after `first` has ended, up to the last command that has ended; empty while
    /// commands end in order.
    ended: VecDeque<bool>,
}

/// Number of a command among those of its path, in the order of sending.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CommandNumber(u64);

impl Commands {
    pub(crate) const fn begin(&mut self) -> CommandNumber {
        let number = CommandNumber(self.next);
        self.next += 1;
        number
    }

    /// Returns the number of the next command. All commands sent so far have lower numbers.
    pub(crate) const fn next(&self) -> CommandNumber {
        CommandNumber(self.next)
    }

    pub(crate) const fn are_none(&self) -> bool {
        self.first == self.next
    }

    /// Returns whether all commands have ended that were sent before this one.
    pub(crate) const fn have_ended_before(&self, number: CommandNumber) -> bool {
        self.first >= number.0
    }

    /// Ends a command: its status has arrived, or will never arrive.
    pub(crate) fn end(&mut self, number: CommandNumber) {
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

    /// Hashes which commands have ended, relative to the first that has not ended, because the absolute
    /// numbers have no effect.
    pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
        (self.next - self.first, &self.ended).hash(state);
    }

    /// Returns the distance of a command from the first that has not ended.
    pub(crate) const fn place(&self, number: CommandNumber) -> i64 {
        number.0.wrapping_sub(self.first).cast_signed()
    }

    /// Gives up all commands before this one: they count as ended, though their statuses have not arrived.
    pub(crate) fn give_up_before(&mut self, number: CommandNumber) {
        (self.first..number.0).for_each(|earlier| self.end(CommandNumber(earlier)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// `first` is always the lowest command that has not ended, also if commands end in another order
        /// than they began, and some end twice.
        #[test]
        fn the_first_is_that_of_all_that_have_not_ended(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let (mut commands, mut in_flight) = (Commands::default(), BTreeSet::new());
            for (sends, which) in steps {
                if sends {
                    in_flight.insert(commands.begin());
                } else if commands.next > 0 {
                    let number = CommandNumber(which.index(usize::try_from(commands.next)?) as u64);
                    in_flight.remove(&number);
                    commands.end(number);
                }
                let first = in_flight.first().map_or(commands.next, |first| first.0);
                prop_assert_eq!(commands.first, first);
                prop_assert_eq!(commands.are_none(), in_flight.is_empty());
            }
            prop_assert!(commands.ended.len() as u64 <= commands.next - commands.first);
        }
    }

    #[test]
    fn commands_that_end_in_order_take_no_memory() {
        let mut commands = Commands::default();
        for _ in 0..100 {
            let in_flight = [(); 4].map(|()| commands.begin());
            in_flight.into_iter().for_each(|number| commands.end(number));
        }
        assert_eq!((commands.first, commands.ended.capacity()), (400, 0));
    }

    #[test]
    fn commands_that_are_given_up_count_as_ended() {
        let mut commands = Commands::default();
        let [first, second, third] = [(); 3].map(|()| commands.begin());
        commands.end(second);
        commands.give_up_before(first);
        assert!(!commands.have_ended_before(third));
        commands.give_up_before(third);
        commands.end(first);
        assert!(commands.have_ended_before(third) && !commands.are_none());
    }
}
