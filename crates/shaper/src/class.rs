//! Settings of a class of requests.

use std::time::Duration;

use iscsi_rate::Rate;
use thiserror::Error;

use crate::rate_limit::RateLimit;

/// A class of requests: its share of the link, which may change at any time.
///
/// A class sends at its rate whatever other classes do, and borrows what its parent has to spare, up to its
/// ceil. The terms are those of `tc-htb(8)`.
///
/// ```
/// use iscsi_shaper::{Class, RateLimit};
///
/// let backup = Class::new("1mbit".parse()?).with_ceil("10mbit".parse()?).with_priority(3);
/// assert_eq!(backup.check(), Ok(()));
/// assert!(backup.with_ceil(RateLimit::Zero).check().is_err());
/// # Ok::<(), iscsi_rate::RateError>(())
/// ```
#[doc(alias("throttle", "rate limit", "bandwidth limit"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Class {
    /// The guaranteed rate. With [`RateLimit::Zero`] the class sends only what it borrows.
    pub rate: RateLimit,
    /// The rate that the class does not exceed, borrowed or not: at least `rate`. The limits of its ancestors
    /// apply as well. Bytes of `rate` that such a limit delays are sent later, in addition to this ceil.
    pub ceil: RateLimit,
    /// The bytes of `rate` that the class may save up while it is idle; `None` for the bytes that `rate`
    /// brings in [`TIME_SLICE`](Self::TIME_SLICE). Bytes beyond this number are lost, for example while a
    /// timer is late.
    pub burst: Option<u64>,
    /// The bytes of `ceil` that the class may save up while it is idle; `None` for the bytes that `ceil`
    /// brings in [`TIME_SLICE`](Self::TIME_SLICE).
    pub cburst: Option<u64>,
    /// The priority among classes that borrow from the same level: 0 goes before 1, up to
    /// [`LAST_PRIORITY`](Self::LAST_PRIORITY). A guaranteed share goes before any borrowed one, whatever
    /// the priorities.
    pub priority: u8,
    /// The weight of the class against classes of the same parent and priority, when they borrow; at least 1.
    /// `None` for its rate in bits per second, so that classes borrow in proportion to their rates. A class
    /// with a rate of 0 then has the weight 1000, the same as with 1 kbit/s.
    pub weight: Option<u64>,
}

/// Reasons why the settings of a class are not valid.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ClassError {
    /// The guaranteed rate of the class exceeds its ceil, the most that it may send.
    #[error("the rate of {rate} exceeds the ceil of {ceil}; raise the ceil, or lower the rate")]
    RateAboveCeil {
        /// The rate that was requested.
        rate: RateLimit,
        /// The ceil that was requested.
        ceil: RateLimit,
    },
    /// The ceil of the class is 0, or the class is the root of the tree and has a rate of 0. Requests would
    /// wait forever.
    #[error(
        "with a ceil of 0, or at the root a rate of 0, nothing could ever pass; 1kbit is the lowest rate"
    )]
    NothingPasses,
    /// The priority is higher than 7.
    #[error("{0} is no priority; it goes from 0, the first, to 7")]
    Priority(u8),
    /// The weight is 0.
    #[error("a weight is at least 1")]
    Weight,
}

impl Class {
    /// The last of the priorities, which begin at 0.
    pub const LAST_PRIORITY: u8 = 7;
    /// The time for which one request should occupy the link at most, 50 ms. The default of bursts and
    /// [`Tree::max_request_len`](crate::Tree::max_request_len) follow from it. A longer request still passes.
    pub const TIME_SLICE: Duration = Duration::from_millis(50);

    /// Creates a class with a guaranteed rate, which borrows nothing.
    #[must_use]
    pub const fn new(rate: RateLimit) -> Self {
        Self { rate, ceil: rate, burst: None, cburst: None, priority: 0, weight: None }
    }

    /// Sets [`ceil`](Self::ceil).
    #[must_use]
    pub const fn with_ceil(mut self, ceil: RateLimit) -> Self {
        self.ceil = ceil;
        self
    }

    /// Sets [`burst`](Self::burst).
    #[must_use]
    pub const fn with_burst(mut self, burst: Option<u64>) -> Self {
        self.burst = burst;
        self
    }

    /// Sets [`cburst`](Self::cburst).
    #[must_use]
    pub const fn with_cburst(mut self, cburst: Option<u64>) -> Self {
        self.cburst = cburst;
        self
    }

    /// Sets [`priority`](Self::priority).
    #[must_use]
    pub const fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`weight`](Self::weight).
    #[must_use]
    pub const fn with_weight(mut self, weight: Option<u64>) -> Self {
        self.weight = weight;
        self
    }

    /// Checks that the settings agree with each other.
    ///
    /// # Errors
    /// [`ClassError`] for the first setting that is not valid.
    pub fn check(&self) -> Result<(), ClassError> {
        if self.ceil == RateLimit::Zero {
            return Err(ClassError::NothingPasses);
        }
        if self.rate > self.ceil {
            return Err(ClassError::RateAboveCeil { rate: self.rate, ceil: self.ceil });
        }
        if self.priority > Self::LAST_PRIORITY {
            return Err(ClassError::Priority(self.priority));
        }
        if self.weight == Some(0) {
            return Err(ClassError::Weight);
        }
        Ok(())
    }

    /// Returns the depth of the bucket of the rate, in bytes.
    pub(crate) fn depth(&self) -> u64 {
        self.burst.unwrap_or_else(|| Self::default_depth(self.rate))
    }

    /// Returns the depth of the bucket of the ceil, in bytes.
    pub(crate) fn ceil_depth(&self) -> u64 {
        self.cburst.unwrap_or_else(|| Self::default_depth(self.ceil))
    }

    fn default_depth(rate: RateLimit) -> u64 {
        // A bucket without a limit has no depth.
        rate.bytes_in(Self::TIME_SLICE).unwrap_or(0)
    }

    /// Returns the weight of the class when it borrows, at least 1.
    pub(crate) fn share(&self) -> u64 {
        let of_rate = || match self.rate {
            RateLimit::Zero => Rate::MIN.bits_per_second(),
            RateLimit::Limited(rate) => rate.bits_per_second(),
            RateLimit::Unlimited => Rate::MAX.bits_per_second(),
        };
        self.weight.unwrap_or_else(of_rate).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> RateLimit {
        text.parse().unwrap()
    }

    #[test]
    fn settings_that_contradict_themselves_are_refused() {
        let class = Class::new(rate("4mbit")).with_ceil(rate("10mbit"));
        assert_eq!(class.check(), Ok(()));
        assert_eq!(Class::new(RateLimit::Unlimited).check(), Ok(()));
        assert_eq!(Class::new(RateLimit::Zero).with_ceil(RateLimit::Unlimited).check(), Ok(()));
        assert_eq!(Class::new(RateLimit::Zero).check(), Err(ClassError::NothingPasses));
        let (rate, ceil) = (rate("4mbit"), rate("3mbit"));
        assert_eq!(class.with_ceil(ceil).check(), Err(ClassError::RateAboveCeil { rate, ceil }));
        assert_eq!(class.with_priority(7).check(), Ok(()));
        assert_eq!(class.with_priority(8).check(), Err(ClassError::Priority(8)));
        assert_eq!(class.with_weight(Some(0)).check(), Err(ClassError::Weight));
    }

    #[test]
    fn a_burst_is_a_time_slice_unless_it_is_given() {
        let class = Class::new(rate("4mbit")).with_ceil(rate("8mbit"));
        assert_eq!((class.depth(), class.ceil_depth()), (25_000, 50_000));
        let class = class.with_burst(Some(1)).with_cburst(Some(2));
        assert_eq!((class.depth(), class.ceil_depth()), (1, 2));
    }
}
