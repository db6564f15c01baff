//! Turns of the classes of one parent, by deficit round robin.

/// Debt of a class to its siblings, by deficit round robin (Shreedhar and Varghese, 1995). A class without a
/// deficit has the turn. It sends one request, and then owes the length of that request. When all classes
/// owe, a round passes that is just long enough for one class to have paid; in a round, each class pays in
/// proportion to its weight. So a round is no longer than necessary, whatever the lengths of requests and the
/// weights.
///
/// A class does not owe bytes that turn out not to have been sent. If rounds have already paid for them, the
/// class has a credit, which is used up before it owes again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deficit(
    /// Debt in 10^-9 bits; negative for a credit.
    i128,
);

const UNITS_A_BYTE: i128 = 8_000_000_000;

impl Deficit {
    /// Returns the length of the shortest round that pays this deficit, if the class pays `weight` per unit
    /// of length.
    pub(crate) fn until_turn(self, weight: u64) -> u128 {
        self.owed().div_ceil(weight.max(1).into())
    }

    /// Reduces the debt by the payment of a class in one round: the length `round`, times `weight`.
    pub(crate) fn pay(&mut self, round: u128, weight: u64) {
        let paid = i128::try_from(round.saturating_mul(weight.into())).unwrap_or(i128::MAX);
        // A credit stays as it is: rounds do not save up turns.
        self.0 = self.0.saturating_sub(paid).max(self.0.min(0));
    }

    /// Adds the debt of a request of `bytes` bytes. A request of 0 bytes counts as 1 byte, so that it takes a
    /// turn as well.
    pub(crate) fn owe(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(units(bytes.max(1)));
    }

    /// Reduces the debt by `less` bytes that were not sent of a request of `bytes` bytes. A credit is at most
    /// the length of the request, so that no class waits longer for a credit of another class than for a
    /// request.
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
