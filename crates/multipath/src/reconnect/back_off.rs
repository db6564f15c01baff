//! Computes pauses between tries.

use std::time::{Duration, Instant};

use iscsi_session::Entropy;

/// Pauses that double up to a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackOff {
    first: Duration,
    max: Duration,
    count: u32,
}

impl BackOff {
    /// Creates pauses that begin with `first`, double each time, and are at most `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, count: 0 }
    }

    /// Skips the first `count` pauses.
    #[must_use]
    pub const fn after(self, count: u32) -> Self {
        Self { count, ..self }
    }

    /// Returns the next pause.
    #[expect(clippy::should_implement_trait, reason = "pauses never end")]
    pub fn next(&mut self) -> Duration {
        let pause = self.first.saturating_mul(2u32.saturating_pow(self.count));
        self.count = self.count.saturating_add(1);
        pause.min(self.max)
    }

    /// Returns the longest pause.
    #[must_use]
    pub const fn max(&self) -> Duration {
        self.max
    }
}

/// Pauses with a random part, so that sessions that were lost together do not reconnect at the same time.
#[derive(Debug)]
pub struct JitteredBackOff<E> {
    entropy: E,
    pauses: BackOff,
    first: Duration,
    /// Maximum random reduction, in percent of each pause.
    jitter: u8,
}

impl<E: Entropy> JitteredBackOff<E> {
    /// Creates pauses, each of which is shortened at random by up to `jitter` percent, at most 100.
    pub const fn new(entropy: E, first: Duration, max: Duration, jitter: u8) -> Self {
        Self { entropy, pauses: BackOff::new(first, max), first, jitter }
    }

    /// Returns the pause before the first try: `least`, plus a random time of up to `jitter` percent of
    /// `least`. The random time is at most the first pause.
    pub fn first(&mut self, least: Duration) -> Duration {
        let max_more = least.saturating_mul(self.jitter.into()) / 100;
        least.saturating_add(max_more.min(self.first).mul_f64(self.chance()))
    }

    /// Returns the pause before the next try.
    pub fn next_pause(&mut self) -> Duration {
        let by_chance = f64::from(self.jitter) / 100.0;
        self.pauses.next().mul_f64(1.0 - by_chance * (1.0 - self.chance()))
    }

    /// Returns the time of the next try; `None` if that is later than `deadline`, or exceeds the range of the
    /// clock.
    pub fn next_before(&mut self, deadline: Option<Instant>, now: Instant) -> Option<Instant> {
        let pause = self.next_pause();
        let next = now.checked_add(pause)?;
        deadline.is_none_or(|deadline| next <= deadline).then_some(next)
    }

    /// Returns a random number from 0 to 1.
    fn chance(&mut self) -> f64 {
        let mut bytes = [0; 2];
        self.entropy.fill(&mut bytes);
        f64::from(u16::from_be_bytes(bytes)) / f64::from(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back_off(byte: u8, millis: [u64; 2], jitter: u8) -> JitteredBackOff<impl Entropy> {
        let [first, max] = millis.map(Duration::from_millis);
        JitteredBackOff::new(move |bytes: &mut [u8]| bytes.fill(byte), first, max, jitter)
    }

    fn pauses(byte: u8) -> Vec<Duration> {
        let mut back_off = back_off(byte, [1000, 5000], 50);
        (0..6).map(|_| back_off.next_pause()).collect()
    }

    /// ERR-11: pauses grow to a limit, and a part of each is random.
    #[test]
    fn err_11_pauses_grow_to_a_limit_and_differ_by_chance() {
        let most = [1, 2, 4, 5, 5, 5].map(Duration::from_secs);
        assert_eq!(pauses(0xff), most);
        assert_eq!(pauses(0), most.map(|pause| pause / 2));
        for (least, most) in [(0, 0), (10, 15), (2_000, 3_000), (3_600_000, 3_601_000)] {
            let first = |byte| {
                let mut back_off = back_off(byte, [1000, 5000], 50);
                back_off.first(Duration::from_millis(least)).as_millis()
            };
            assert_eq!((first(0), first(0xff)), (least.into(), most));
        }
        let between = pauses(0x80);
        assert!(between.iter().zip(most).all(|(pause, most)| *pause > most / 2 && *pause < most));
    }

    #[test]
    fn the_options_set_how_long_pauses_are_and_how_much_is_random() {
        let next = |byte, jitter| {
            let mut back_off = back_off(byte, [100, 300], jitter);
            let first = back_off.first(Duration::from_secs(1));
            [first, back_off.next_pause(), back_off.next_pause(), back_off.next_pause()]
        };
        let millis = |all: [u64; 4]| all.map(Duration::from_millis);
        let even = millis([1000, 100, 200, 300]);
        assert_eq!((next(0, 0), next(0xff, 0)), (even, even));
        assert_eq!(next(0, 100), millis([1000, 0, 0, 0]));
        assert_eq!(next(0xff, 100), millis([1100, 100, 200, 300]));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn no_try_begins_after_the_deadline() {
        let begun = Instant::now();
        let after = |seconds| begun.checked_add(Duration::from_secs(seconds));
        let mut back_off = back_off(0xff, [1000, 5000], 50);
        assert_eq!(back_off.next_before(after(1), begun), after(1));
        assert_eq!(back_off.next_before(after(1), begun), None);
        assert_eq!(back_off.next_before(None, begun), after(4));
    }
}
