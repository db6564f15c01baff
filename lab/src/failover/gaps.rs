//! Measures the times without progress.

/// Shortest time without progress that is listed, seconds.
const LONG: f64 = 0.5;

/// The times between successive progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gaps {
    first: Option<f64>,
    last: f64,
    /// Longest time without progress, seconds.
    pub(super) longest: f64,
    /// The times of at least 0.5 s: when each began, counted from the first progress, and its length, seconds.
    pub(super) long: Vec<(f64, f64)>,
}

impl Gaps {
    /// Notes progress at the time `at`, seconds from any origin. The time must not be before that of the
    /// previous call.
    pub(super) fn progress(&mut self, at: f64) {
        let Some(first) = self.first else {
            (self.first, self.last) = (Some(at), at);
            return;
        };
        let gap = at - self.last;
        self.longest = self.longest.max(gap);
        if gap >= LONG {
            self.long.push((self.last - first, gap));
        }
        self.last = at;
    }

    /// Returns the time from the first progress to the last, seconds.
    pub(super) fn span(&self) -> f64 {
        self.first.map_or(0.0, |first| self.last - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_lie_between_the_first_and_the_last() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.span(), 0.0);
        for at in [10.0, 10.25, 12.25, 12.5, 13.0] {
            gaps.progress(at);
        }
        assert_eq!((gaps.longest, gaps.span()), (2.0, 3.0));
        assert_eq!(gaps.long, [(0.25, 2.0), (2.5, 0.5)]);
    }
}
