//! Whose turn it is among classes of one parent.

/// How far a class is behind, or ahead of, its share by weight: deficit round robin (Shreedhar and
/// Varghese, 1995). Whoever has no deficit has the turn, sends one request, and owes it. When all owe, a
/// round goes by that is just so long that the first has paid, and each pays by its weight: so a round is
/// no longer than it must be, whatever the lengths of requests and the weights.
///
/// What turns out not to have been sent is not owed. Rounds may have paid it by then; that is a credit, which is
/// sent before anything is owed again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deficit(
    /// What it owes, 10^-9 bits. Less than nothing is a credit.
    i128,
);

const UNITS_A_BYTE: i128 = 8_000_000_000;

impl Deficit {
    /// How long the round is until it has the turn, if each round of one pays `weight`.
    pub(crate) fn until_turn(self, weight: u64) -> u128 {
        self.owed().div_ceil(weight.max(1).into())
    }

    /// A round of this length goes by.
    pub(crate) fn pay(&mut self, round: u128, weight: u64) {
        let paid = i128::try_from(round.saturating_mul(weight.into())).unwrap_or(i128::MAX);
        // A credit stays as it is: nobody saves up turns.
        self.0 = self.0.saturating_sub(paid).max(self.0.min(0));
    }

    /// So many bytes were sent. A request without any takes a turn as well.
    pub(crate) fn owe(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(units(bytes.max(1)));
    }

    /// Of a request of so many bytes so many were not sent. Its length is the most that may become a credit: so nobody
    /// waits longer for that than for a request.
    pub(crate) fn forgive(&mut self, less: u64, bytes: u64) {
        let bound = self.0.min(-units(bytes));
        self.0 = self.0.saturating_sub(units(less)).max(bound);
    }

    fn owed(self) -> u128 {
        self.0.max(0).unsigned_abs()
    }
}

fn units(bytes: u64) -> i128 {
    i128::from(bytes) * UNITS_A_BYTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_is_kept_by_rounds_and_does_not_grow_with_them() {
        let mut deficit = Deficit::default();
        deficit.owe(10);
        deficit.pay(deficit.until_turn(3), 3);
        deficit.forgive(8, 10);
        for _ in 0..3 {
            deficit.pay(1 << 40, 3);
        }
        deficit.owe(8);
        assert_eq!(deficit.until_turn(1), 0);
        deficit.owe(1);
        assert_eq!(deficit.until_turn(2), 4_000_000_000);
    }

    #[test]
    fn a_credit_is_no_longer_than_a_request() {
        let mut deficit = Deficit::default();
        (0..9).for_each(|_| deficit.forgive(10, 10));
        deficit.forgive(1, 1);
        deficit.owe(10);
        assert_eq!(deficit.until_turn(1), 0);
        deficit.owe(1);
        assert!(deficit.until_turn(1) > 0);
        deficit.owe(u64::MAX);
        deficit.forgive(u64::MAX, u64::MAX);
        assert_eq!(deficit.until_turn(1), 8_000_000_000);
    }
}
