//! The pauses between tries to open a session anew.

use std::time::Duration;

use iscsi_session::Entropy;

use crate::options::reopening::ReopeningOptions;

/// Pauses that double up to a limit. A part of each is left to chance: the sessions that a target or a
/// line has lost together do not come back in step.
#[derive(Debug)]
pub(crate) struct BackOff<E> {
    entropy: E,
    options: ReopeningOptions,
    /// The longest that the next pause may be.
    longest: Duration,
}

impl<E: Entropy> BackOff<E> {
    pub(crate) const fn new(entropy: E, options: ReopeningOptions) -> Self {
        Self { entropy, longest: options.first_pause, options }
    }

    /// The pause before the first try, which shall last at least so long: longer by as much as is left
    /// to chance, but not by more than the first pause.
    pub(super) fn first(&mut self, least: Duration) -> Duration {
        let max_more = least.saturating_mul(self.options.jitter.into()) / 100;
        least.saturating_add(max_more.min(self.options.first_pause).mul_f64(self.chance()))
    }

    /// The pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        let by_chance = f64::from(self.options.jitter) / 100.0;
        let pause = self.longest.mul_f64(1.0 - by_chance * (1.0 - self.chance()));
        self.longest = self.longest.saturating_mul(2).min(self.options.max_pause);
        pause
    }

    /// 0 to 1.
    fn chance(&mut self) -> f64 {
        let mut bytes = [0; 2];
        self.entropy.fill(&mut bytes);
        f64::from(u16::from_be_bytes(bytes)) / f64::from(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back_off(byte: u8, options: ReopeningOptions) -> BackOff<impl Entropy> {
        BackOff::new(move |bytes: &mut [u8]| bytes.fill(byte), options)
    }

    fn pauses(byte: u8) -> Vec<Duration> {
        let mut back_off = back_off(byte, ReopeningOptions::default());
        (0..6).map(|_| back_off.next()).collect()
    }

    /// ERR-11: they grow to a limit, and chance has its say in each.
    #[test]
    fn err_11_pauses_grow_to_a_limit_and_differ_by_chance() {
        let most = [1, 2, 4, 5, 5, 5].map(Duration::from_secs);
        assert_eq!(pauses(0xff), most);
        assert_eq!(pauses(0), most.map(|pause| pause / 2));
        for (least, most) in [(0, 0), (10, 15), (2_000, 3_000), (3_600_000, 3_601_000)] {
            let first = |byte| {
                let mut back_off = back_off(byte, ReopeningOptions::default());
                back_off.first(Duration::from_millis(least)).as_millis()
            };
            assert_eq!((first(0), first(0xff)), (least.into(), most));
        }
        let between = pauses(0x80);
        assert!(between.iter().zip(most).all(|(pause, most)| *pause > most / 2 && *pause < most));
    }

    #[test]
    fn the_options_say_how_long_pauses_are_and_how_much_is_chance() {
        let millis = Duration::from_millis;
        let options =
            ReopeningOptions::default().with_first_pause(millis(100)).with_max_pause(millis(300));
        let next = |byte, jitter| {
            let mut back_off = back_off(byte, options.clone().with_jitter(jitter));
            let first = back_off.first(millis(1000));
            [first, back_off.next(), back_off.next(), back_off.next()]
        };
        let even = [1000, 100, 200, 300].map(millis);
        assert_eq!((next(0, 0), next(0xff, 0)), (even, even));
        assert_eq!(next(0, 100), [1000, 0, 0, 0].map(millis));
        assert_eq!(next(0xff, 100), [1100, 100, 200, 300].map(millis));
    }
}
