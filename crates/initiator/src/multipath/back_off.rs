//! The pauses between tries to open a session anew.

use std::time::Duration;

use iscsi_session::Entropy;

use crate::options::back_off::BackOff;

/// The share of each pause that is random.
const JITTER: f64 = 0.5;

/// Pauses that double up to a limit. A part of each is left to chance: the sessions that a target or a
/// line has lost together do not come back in step.
#[derive(Debug)]
pub(crate) struct RandomPauses<E> {
    entropy: E,
    options: BackOff,
    /// The longest that the next pause may be.
    longest: Duration,
}

impl<E: Entropy> RandomPauses<E> {
    pub(crate) const fn new(entropy: E, options: BackOff) -> Self {
        Self { entropy, longest: options.first_pause, options }
    }

    /// The pause before the first try, which shall last at least so long: longer by as much as is left
    /// to chance, but not by more than the first pause.
    pub(super) fn first(&mut self, least: Duration) -> Duration {
        let max_more = least.mul_f64(JITTER);
        least.saturating_add(max_more.min(self.options.first_pause).mul_f64(self.chance()))
    }

    /// The pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.longest.mul_f64(1.0 - JITTER * (1.0 - self.chance()));
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

    fn seconds(byte: u8) -> RandomPauses<impl Entropy> {
        pauses_of(byte, BackOff::new(Duration::from_secs(1), Duration::from_secs(5)))
    }

    fn pauses_of(byte: u8, options: BackOff) -> RandomPauses<impl Entropy> {
        RandomPauses::new(move |bytes: &mut [u8]| bytes.fill(byte), options)
    }

    fn pauses(byte: u8) -> Vec<Duration> {
        let mut pauses = seconds(byte);
        (0..6).map(|_| pauses.next()).collect()
    }

    /// ERR-11: they grow to a limit, and chance has its say in each.
    #[test]
    fn err_11_pauses_grow_to_a_limit_and_differ_by_chance() {
        let most = [1, 2, 4, 5, 5, 5].map(Duration::from_secs);
        assert_eq!(pauses(0xff), most);
        assert_eq!(pauses(0), most.map(|pause| pause / 2));
        for (least, most) in [(0, 0), (10, 15), (2_000, 3_000), (3_600_000, 3_601_000)] {
            let first = |byte| seconds(byte).first(Duration::from_millis(least)).as_millis();
            assert_eq!((first(0), first(0xff)), (least.into(), most));
        }
        let between = pauses(0x80);
        assert!(between.iter().zip(most).all(|(pause, most)| *pause > most / 2 && *pause < most));
    }

    #[test]
    fn the_options_say_how_long_pauses_are() {
        let millis = Duration::from_millis;
        let next = |byte| {
            let mut pauses = pauses_of(byte, BackOff::new(millis(100), millis(300)));
            let first = pauses.first(millis(1000));
            [first, pauses.next(), pauses.next(), pauses.next()]
        };
        assert_eq!(next(0), [1000, 50, 100, 150].map(millis));
        assert_eq!(next(0xff), [1100, 100, 200, 300].map(millis));
    }
}
