//! Defines schedulers, which decide when requests may be sent, and what they are charged.

use std::fmt;
use std::pin::Pin;

use iscsi_shaper::RateLimit;

/// The future of [`Scheduler::grant`].
pub type Granting<'a> = Pin<Box<dyn Future<Output = Charge> + Send + 'a>>;

/// Decides when the requests of a [`TrafficClass`](crate::TrafficClass) may be sent. A
/// [`Shaper`](crate::Shaper) implements this trait for its classes. To limit the rate of several processes
/// together, implement a scheduler that requests each grant from one process.
///
/// That process calls [`TrafficClass::pass`](crate::TrafficClass::pass) for its classes, and sends the result
/// to the scheduler.
#[doc(alias = "rate limit")]
pub trait Scheduler: fmt::Debug + Send + Sync {
    /// Waits until a request of `bytes` bytes may be sent. Grant requests in the order in which
    /// these futures are first polled. Dropping the future withdraws the request, whether it was
    /// granted meanwhile or not.
    fn grant(&self, bytes: u64) -> Granting<'_>;

    /// Returns the current maximum rate. A disk splits its requests by this rate, and keeps as many of them
    /// waiting as can be sent in one second.
    fn ceil(&self) -> RateLimit;
}

/// The bytes that a request was charged. A charge that is dropped before it is [sent](Self::sent) is
/// refunded.
pub struct Charge {
    bytes: u64,
    is_sent: bool,
    settle: Option<Box<dyn FnOnce(u64) + Send>>,
}

impl Charge {
    /// Creates a charge of `bytes` bytes. `settle` is called once, when the charge ends, with the number of
    /// bytes that the request has moved. The number is 0 if the request was not sent, and may be lower or
    /// higher than `bytes` after [`complete`](Self::complete).
    #[must_use]
    pub fn new(bytes: u64, settle: impl FnOnce(u64) + Send + 'static) -> Self {
        Self { bytes, is_sent: false, settle: Some(Box::new(settle)) }
    }

    /// Returns the number of bytes that the request was charged.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks the request as sent. From then on, dropping the charge counts all of its bytes.
    pub fn sent(mut self) -> Self {
        self.is_sent = true;
        self
    }

    /// Settles the charge: the request has moved `moved` bytes.
    pub fn complete(mut self, moved: u64) {
        self.end(moved);
    }

    fn end(&mut self, moved: u64) {
        if let Some(settle) = self.settle.take() {
            settle(moved);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.end(if self.is_sent { self.bytes } else { 0 });
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, is_sent, .. } = self;
        f.debug_struct("Charge").field("bytes", bytes).field("is_sent", is_sent).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_charge_is_settled_once_by_what_became_of_its_request() {
        let settled = Arc::new(AtomicU64::new(0));
        let charge = || {
            let settled = Arc::clone(&settled);
            Charge::new(7, move |moved| _ = settled.fetch_add(100 + moved, Ordering::Relaxed))
        };
        let since = || settled.swap(0, Ordering::Relaxed);
        drop(charge());
        assert_eq!(since(), 100);
        drop(charge().sent());
        assert_eq!(since(), 107);
        charge().sent().complete(3);
        assert_eq!(since(), 103);
    }
}
