//! Defines classes of requests, which limit the rate of disks.

use std::sync::Arc;
use std::time::Duration;

use iscsi_shaper::{Class, Rate, RateLimit};
use tokio::sync::watch;

use crate::class_waits::ClassWaits;
use crate::scheduler::{Charge, Scheduler};

/// Number of [`Class::TIME_SLICE`]s in a second.
const SLICES: u64 = 20;
/// Inverse of the margin by which connections send faster than the ceil: 1/20 of the ceil.
const PACING_MARGIN: u64 = 20;
/// Lowest pacing rate: one request of 4 KiB, the shortest into which requests are split, per
/// [`Class::TIME_SLICE`]; bits per second.
const MIN_PACING_RATE: u64 = 4096 * 8 * SLICES;

/// A class of requests that share a rate, for [`Options::with_class`](crate::Options::with_class). Clones
/// refer to the same class.
///
/// Most classes belong to a [`Shaper`](crate::Shaper) of this process. If another process limits the rate,
/// implement a [`Scheduler`] that requests grants from that process:
///
/// ```
/// use std::sync::Arc;
///
/// use iscsi_initiator::shaping::{Charge, Granting, RateLimit, Scheduler};
/// use iscsi_initiator::{Options, TrafficClass};
///
/// /// Asks the process that limits the rate.
/// #[derive(Debug)]
/// struct Remote;
///
/// impl Scheduler for Remote {
///     fn grant(&self, bytes: u64) -> Granting<'_> {
///         // Here it would ask, and wait for the answer.
///         Box::pin(async move { Charge::new(bytes, |moved| println!("{moved} bytes")) })
///     }
///
///     fn ceil(&self) -> RateLimit {
///         RateLimit::Unlimited
///     }
/// }
///
/// let class = TrafficClass::new(Arc::new(Remote));
/// let options = Options::default().with_class(Some(class.clone()));
/// ```
#[doc(alias("rate limit", "throttle", "bandwidth"))]
#[derive(Clone, Debug)]
pub struct TrafficClass {
    scheduler: Arc<dyn Scheduler>,
    passage: Arc<watch::Sender<Passage>>,
    waits: Arc<ClassWaits>,
}

/// Whether requests may reach the scheduler.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Passage {
    #[default]
    Open,
    Paused,
    Closed,
}

impl TrafficClass {
    /// Creates a class whose requests this scheduler grants.
    #[must_use]
    pub fn new(scheduler: Arc<dyn Scheduler>) -> Self {
        Self { scheduler, passage: Arc::default(), waits: Arc::default() }
    }

    /// Stops further requests of this handle until [`resume`](Self::resume) is called. Other users of the
    /// class can use its whole rate meanwhile. Requests in flight are completed.
    pub fn pause(&self) {
        self.turn(Passage::Paused);
    }

    /// Lets requests pass again after a [pause](Self::pause).
    pub fn resume(&self) {
        self.turn(Passage::Open);
    }

    /// Refuses all later requests of this handle, and requests that wait, with
    /// [`Closed`](crate::ErrorKind::Closed). This cannot be undone. Requests in flight are completed, and
    /// flushes are still sent. A request that is sent as several commands returns when its commands in flight
    /// are completed.
    pub fn close(&self) {
        self.turn(Passage::Closed);
    }

    /// Returns the current maximum rate.
    #[must_use]
    pub fn ceil(&self) -> RateLimit {
        self.scheduler.ceil()
    }

    /// Waits until a request of `bytes` bytes may be sent; `None` if the class is
    /// [closed](Self::close).
    ///
    /// A [`Disk`](crate::Disk) calls this by itself. Call it for other traffic that shares the rate of the
    /// class.
    pub async fn pass(&self, bytes: u64) -> Option<Charge> {
        let _waiting = self.waits.join();
        let mut passage = self.passage.subscribe();
        loop {
            let now = *passage.borrow_and_update();
            match now {
                Passage::Closed => return None,
                // `changed` cannot fail, because `self` keeps the sender.
                Passage::Paused => _ = passage.changed().await,
                Passage::Open => tokio::select! {
                    biased;
                    // Dropping the grant withdraws the request from the class, so that the class can serve
                    // other requests.
                    _ = passage.changed() => {}
                    charge = self.scheduler.grant(bytes) => return Some(charge),
                },
            }
        }
    }

    /// Returns the maximum length of a request, in bytes; `None` without a limit.
    pub(crate) fn max_request_len(&self) -> Option<u64> {
        self.ceil().bytes_in(Class::TIME_SLICE)
    }

    /// Returns how many bytes may pass in one second; `None` without a limit.
    pub(crate) fn bytes_in_second(&self) -> Option<u64> {
        self.max_request_len().map(|bytes| bytes.saturating_mul(SLICES))
    }

    /// Returns the pacing rate of a connection, so that bytes that pass in one moment do not leave the host
    /// in one burst; `None` for no pacing. The rate is a little above the ceil, which the class itself
    /// enforces. The rate has a minimum, so that commands that are not shaped do not wait long after a
    /// request.
    pub(crate) fn pacing_rate(&self) -> Option<Rate> {
        let ceil = self.ceil().bits_per_second().filter(|ceil| *ceil > 0)?;
        let rate = (ceil + ceil / PACING_MARGIN).max(MIN_PACING_RATE);
        Rate::from_bits_per_second(rate).ok()
    }

    /// Returns the total time in which requests of this handle have waited for their turn, including pauses.
    pub(crate) fn waited(&self) -> Duration {
        self.waits.total()
    }

    /// Changes the passage, unless the class is closed.
    fn turn(&self, next: Passage) {
        self.passage.send_if_modified(|passage| {
            let is_new = *passage != Passage::Closed && *passage != next;
            if is_new {
                *passage = next;
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Shaper;

    use super::*;

    #[test]
    fn connections_send_a_little_above_the_ceil_and_never_so_slowly_that_others_wait() {
        let rate = |text: &str| {
            let shaper = Shaper::new(Class::new(text.parse().unwrap())).unwrap();
            shaper.traffic_class(shaper.default_class()).pacing_rate()
        };
        let bits = |bits| Rate::from_bits_per_second(bits).ok();
        assert_eq!(rate("off"), None);
        assert_eq!(rate("100mbit"), bits(105_000_000));
        assert_eq!(rate("1kbit"), bits(655_360));
        assert_eq!(rate("1000gbit"), None, "beyond what there is");
    }
}
