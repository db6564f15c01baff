//! Whose turn it is among classes of one parent.

/// How far a class is behind, or ahead of, its share by weight: deficit round robin (Shreedhar and
/// Varghese, 1995). Whoever has no deficit has the turn, sends one request, and owes it. When all owe, a
/// round goes by that is just so long that the first has paid, and each pays by its weight: so a round is
/// no longer than it must be, whatever the lengths of requests and the weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deficit(
    /// What it owes, 10^-9 bits.
    u128,
);

const UNITS_A_BYTE: u128 = 8_000_000_000;

impl Deficit {
    /// How long the round is until it has the turn, if each round of one pays `weight`.
    pub(crate) fn until_turn(self, weight: u64) -> u128 {
        self.0.div_ceil(weight.max(1).into())
    }

    /// A round of this length goes by.
    pub(crate) fn pay(&mut self, round: u128, weight: u64) {
        self.0 = self.0.saturating_sub(round.saturating_mul(weight.into()));
    }

    /// So many bytes were sent. A request without any takes a turn as well.
    pub(crate) fn owe(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(u128::from(bytes.max(1)) * UNITS_A_BYTE);
    }
}
