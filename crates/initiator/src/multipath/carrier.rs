//! What brings a transfer to the unit.

use std::time::{Duration, Instant};

use iscsi_multipath::FlushRank;

use crate::error::Error;
use crate::unit::transfer::Transfer;

/// The answer to a transfer, and the time that it took, waits included.
#[derive(Debug)]
pub(crate) struct Answered<A> {
    pub(crate) answer: A,
    pub(crate) time: Duration,
}

impl<A> Answered<A> {
    /// The answer that came at this time to a transfer that had begun at that.
    pub(super) fn since(begun: Instant, (answer, came): (A, Instant)) -> Self {
        Self { answer, time: came.saturating_duration_since(begun) }
    }
}

/// One way to the unit: a unit through one session, or in tests a simulated link.
pub(crate) trait Carrier: Clone + Send + Sync + 'static {
    /// How a transfer ends.
    type Answer: Send + 'static;

    /// Somebody reopens lost paths: what this one leaves behind when it is lost counts until it is
    /// settled.
    fn keep_unsettled(&self);

    /// Whether the unit has finished with every write that was sent over it.
    fn is_settled(&self) -> bool;

    /// The unit may have something to tell that nobody hears: the path is gone, or there was none before it.
    fn may_have_missed(&self) {}

    /// One more command is sent again.
    fn count_retry(&self);

    /// How many commands it has sent again.
    fn retries(&self) -> u64;

    /// Bytes that an answer has brought, of those that there was room for.
    fn brought(_answer: &Self::Answer, room: u64) -> u64 {
        room
    }

    /// How long a write had better be that goes this way, bytes.
    fn longest_write(&self) -> u64 {
        u64::MAX
    }

    /// How long a read had better be that goes this way, bytes.
    fn longest_read(&self) -> u64 {
        u64::MAX
    }

    /// How fit it is to flush what was written over all.
    fn flush_rank(&self) -> Option<FlushRank> {
        None
    }

    /// Carries a transfer out once. When that fails, another one can carry the same transfer out: a copy kept for that costs
    /// each read of 4 KiB 1,200 instructions of 26,500.
    fn carry(
        &self,
        transfer: &mut Transfer,
    ) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// The error of a transfer that has met a reservation, with what the unit says of that.
    fn explain(&self, _: &Transfer, error: Error) -> impl Future<Output = Error> + Send {
        std::future::ready(error)
    }
}
