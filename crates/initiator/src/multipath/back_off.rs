//! The pauses between tries to open a session anew.

use std::time::Duration;

use iscsi_session::Entropy;

/// The longest pause before the second try.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause of all: so long a target that is back is not missed.
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Pauses that double up to a limit. Each is drawn from the upper half of its range: the sessions that
/// a target or a line has lost together do not come back in step.
#[derive(Debug)]
pub(super) struct BackOff<E> {
    entropy: E,
    longest: Duration,
}

impl<E: Entropy> BackOff<E> {
    pub(super) const fn new(entropy: E) -> Self {
        Self { entropy, longest: FIRST }
    }

    /// The pause before the first try, which shall last at least so long: up to half as long again, or
    /// a second more.
    pub(super) fn first(&mut self, least: Duration) -> Duration {
        let most_more = (least / 2).min(FIRST);
        least.saturating_add(most_more.mul_f64(self.chance()))
    }

    /// The pause before the next try.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.longest.mul_f64(0.5 + self.chance() / 2.0);
        self.longest = (self.longest * 2).min(MAX_PAUSE);
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

    fn pauses(byte: u8) -> Vec<Duration> {
        let mut back_off = BackOff::new(move |bytes: &mut [u8]| bytes.fill(byte));
        (0..6).map(|_| back_off.next()).collect()
    }

    /// ERR-11: they grow to a limit, and chance has its say in each.
    #[test]
    fn err_11_pauses_grow_to_a_limit_and_differ_by_chance() {
        let most = [1, 2, 4, 8, 15, 15].map(Duration::from_secs);
        assert_eq!(pauses(0xff), most);
        assert_eq!(pauses(0), most.map(|pause| pause / 2));
        for (least, most) in [(0, 0), (10, 15), (2_000, 3_000), (3_600_000, 3_601_000)] {
            let first = |byte| {
                let mut back_off = BackOff::new(move |bytes: &mut [u8]| bytes.fill(byte));
                back_off.first(Duration::from_millis(least)).as_millis()
            };
            assert_eq!((first(0), first(0xff)), (least.into(), most));
        }
        let between = pauses(0x80);
        assert!(between.iter().zip(most).all(|(pause, most)| *pause > most / 2 && *pause < most));
    }
}
