//! Computes a canonical hash of the state of a unit, for an exhaustive search over states.

use std::hash::{Hash, Hasher};

use super::{Begun, Unit};
use crate::commands::CommandNumber;
use crate::durability::Epoch;
use crate::ids::PathId;

impl Unit {
    /// Returns the distance of a command from the first command of its path that has not ended.
    pub(crate) fn place(&self, path: PathId, number: CommandNumber) -> Option<i64> {
        self.commands.get(path).map(|commands| commands.place(number))
    }

    /// Hashes the state that affects later behavior. Epochs, command numbers and counts are replaced by their
    /// order or by differences, so that two states with the same future have the same hash, whatever led to
    /// them.
    ///
    /// `begun` are the commands in flight, `kept` the epochs that flushes contain.
    pub(crate) fn fingerprint(
        &self,
        begun: &[(PathId, Begun)],
        kept: &[Option<Epoch>],
        state: &mut impl Hasher,
    ) {
        let in_flight = begun.iter().map(|(_, begun)| Some(begun.epoch));
        let epochs: Vec<_> =
            self.durability.epochs().chain(in_flight).chain(kept.iter().copied()).collect();
        let mut order = epochs.clone();
        order.push(Some(Epoch::NEVER));
        order.sort_unstable();
        order.dedup();
        order.len().hash(state);
        epochs.iter().for_each(|epoch| order.binary_search(epoch).hash(state));
        self.durability.has_cache().hash(state);
        self.commands.iter().for_each(|commands| commands.fingerprint(state));
        for (path, begun) in begun {
            self.commands.get(*path).map(|commands| commands.place(begun.number)).hash(state);
            self.identity.fingerprint(*path, Some(begun.before), None, state);
        }
    }
}
