//! Counts the requests of a disk, or of one of its sessions.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::state::latency::Latency;

/// Kind of a request in statistics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Flush,
    Other,
}

/// Statistics of the requests of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KindStats {
    /// Number of requests that succeeded.
    pub requests: u64,
    /// Bytes of data that these requests moved.
    pub bytes: u64,
    /// Number of requests that failed.
    pub errors: u64,
    /// Durations of the successful requests.
    pub latency: Latency,
}

/// Statistics of requests by kind. A request whose future was dropped counts only while it is in flight.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RequestStats {
    /// READ commands.
    pub reads: KindStats,
    /// WRITE commands.
    pub writes: KindStats,
    /// SYNCHRONIZE CACHE commands.
    pub flushes: KindStats,
    /// UNMAP and WRITE SAME commands; among the commands of sessions also GET LBA STATUS. The bytes of UNMAP
    /// and WRITE SAME are the bytes sent, not the bytes set to zero.
    pub others: KindStats,
    /// Number of requests in flight.
    pub requests_in_flight: u64,
    /// Bytes of data of the requests in flight.
    pub bytes_in_flight: u64,
}

impl KindStats {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.add(&other.latency);
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            latency: self.latency.since(&earlier.latency),
        }
    }
}

impl RequestStats {
    /// Returns the statistics of each kind with its name: read, write, flush, other.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &KindStats)> {
        [
            ("read", &self.reads),
            ("write", &self.writes),
            ("flush", &self.flushes),
            ("other", &self.others),
        ]
        .into_iter()
    }

    /// Returns the number of requests of all kinds that succeeded.
    pub fn requests(&self) -> u64 {
        self.kinds().map(|(_, kind)| kind.requests).sum()
    }

    /// Returns the number of requests of all kinds that failed.
    pub fn errors(&self) -> u64 {
        self.kinds().map(|(_, kind)| kind.errors).sum()
    }

    /// Returns the counts since an earlier snapshot of the same statistics. The requests and bytes in flight
    /// are those of the later snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.since(&earlier.reads),
            writes: self.writes.since(&earlier.writes),
            flushes: self.flushes.since(&earlier.flushes),
            others: self.others.since(&earlier.others),
            ..*self
        }
    }

    /// Counts a request that has ended.
    fn count(&mut self, End { kind, bytes, time }: End) {
        let kind = self.kind_mut(kind);
        let Some(time) = time else {
            kind.errors += 1;
            return;
        };
        kind.requests += 1;
        kind.bytes += bytes;
        kind.latency.record(time);
    }

    const fn kind_mut(&mut self, kind: RequestKind) -> &mut KindStats {
        match kind {
            RequestKind::Read => &mut self.reads,
            RequestKind::Write => &mut self.writes,
            RequestKind::Flush => &mut self.flushes,
            RequestKind::Other => &mut self.others,
        }
    }
}

/// Adds other statistics, for example of another disk.
impl AddAssign<&Self> for RequestStats {
    fn add_assign(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
        self.others.add(&other.others);
        self.requests_in_flight += other.requests_in_flight;
        self.bytes_in_flight += other.bytes_in_flight;
    }
}

/// Number of ended requests that are noted before they are counted together. Counting one touches four cache
/// lines, noting it touches one.
const NOTED: usize = 32;

/// Counts requests from many tasks concurrently.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Counted>);

/// Statistics of requests, protected by the lock of the struct that contains them.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Number of requests in flight.
    requests_in_flight: u64,
    bytes_in_flight: u64,
    /// Ended requests that are noted and not counted yet.
    noted: Vec<End>,
    /// Statistics without the requests in flight. Shared with snapshots, so that the statistics are not
    /// copied under the lock.
    stats: Arc<RequestStats>,
}

/// Statistics at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    requests_in_flight: u64,
    bytes_in_flight: u64,
    stats: Arc<RequestStats>,
}

/// The end of a request. `time` is the time that the request took, or `None` if it failed.
#[derive(Clone, Copy, Debug)]
struct End {
    kind: RequestKind,
    bytes: u64,
    time: Option<Duration>,
}

/// A request in flight, until it has ended or this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    counters: &'a Counters,
    kind: RequestKind,
    bytes: u64,
    has_ended: bool,
}

impl Counters {
    /// Counts the beginning of a request that moves `bytes` bytes.
    pub(crate) fn begin(&self, kind: RequestKind, bytes: u64) -> Running<'_> {
        self.lock().begin(bytes);
        Running { counters: self, kind, bytes, has_ended: false }
    }

    /// Returns the statistics so far.
    pub(crate) fn stats(&self) -> RequestStats {
        let snapshot = self.lock().snapshot();
        snapshot.into_stats()
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Returns the number of requests in flight, and their bytes.
    pub(crate) const fn in_flight(&self) -> (u64, u64) {
        (self.requests_in_flight, self.bytes_in_flight)
    }

    /// Counts the beginning of a request that moves `bytes` bytes.
    pub(crate) const fn begin(&mut self, bytes: u64) {
        self.requests_in_flight += 1;
        self.bytes_in_flight += bytes;
    }

    /// Counts the end of a request: `time` is the time that it took, or `None` if it failed.
    pub(crate) fn end(&mut self, kind: RequestKind, bytes: u64, time: Option<Duration>) {
        self.give_up(bytes);
        if self.noted.len() >= NOTED {
            self.catch_up();
        }
        self.noted.push(End { kind, bytes, time });
    }

    /// Removes a request from those in flight, and counts no result.
    pub(crate) const fn give_up(&mut self, bytes: u64) {
        self.requests_in_flight -= 1;
        self.bytes_in_flight -= bytes;
    }

    /// Counts the ended requests that were noted.
    fn catch_up(&mut self) {
        let Self { noted, stats, .. } = self;
        if !noted.is_empty() {
            let stats = Arc::make_mut(stats);
            noted.drain(..).for_each(|end| stats.count(end));
        }
    }

    /// Returns the statistics so far.
    pub(crate) fn snapshot(&mut self) -> Snapshot {
        self.catch_up();
        let Self { requests_in_flight, bytes_in_flight, .. } = *self;
        Snapshot { requests_in_flight, bytes_in_flight, stats: Arc::clone(&self.stats) }
    }

    /// Adds the counts of `other`. The requests that `other` has in flight will end here.
    pub(crate) fn inherit(&mut self, mut other: Self) {
        other.catch_up();
        *Arc::make_mut(&mut self.stats) += &other.stats;
        self.requests_in_flight += other.requests_in_flight;
        self.bytes_in_flight += other.bytes_in_flight;
    }
}

impl Snapshot {
    /// Returns the statistics. The snapshot is copied only if it is still shared.
    pub(crate) fn into_stats(self) -> RequestStats {
        let Self { requests_in_flight, bytes_in_flight, stats } = self;
        RequestStats { requests_in_flight, bytes_in_flight, ..Arc::unwrap_or_clone(stats) }
    }
}

impl Running<'_> {
    /// Counts the end of the request: `time` is the time that it took, or `None` if it failed.
    pub(crate) fn end(mut self, time: Option<Duration>) {
        self.has_ended = true;
        self.counters.lock().end(self.kind, self.bytes, time);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.counters.lock().give_up(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(5);

    #[test]
    fn a_request_counts_once_when_it_ends_and_not_at_all_when_it_is_dropped() {
        let counters = Counters::default();
        let good = counters.begin(RequestKind::Read, 100);
        let bad = counters.begin(RequestKind::Write, 10);
        drop(counters.begin(RequestKind::Flush, 0));
        let stats = counters.stats();
        assert_eq!((stats.requests_in_flight, stats.bytes_in_flight), (2, 110));
        assert_eq!(stats.requests() + stats.errors(), 0);
        good.end(Some(TIME));
        bad.end(None);
        let stats = counters.stats();
        assert_eq!((stats.requests_in_flight, stats.bytes_in_flight), (0, 0));
        assert_eq!((stats.reads.requests, stats.reads.bytes, stats.reads.errors), (1, 100, 0));
        assert_eq!((stats.writes.requests, stats.writes.bytes, stats.writes.errors), (0, 0, 1));
        assert_eq!(stats.reads.latency.sum(), TIME);
        assert_eq!((stats.requests(), stats.errors(), stats.flushes.requests), (1, 1, 0));
    }

    #[test]
    fn what_is_noted_and_not_counted_yet_is_in_every_snapshot() {
        let counters = Counters::default();
        for ended in 1..=3 * NOTED as u64 + 1 {
            counters.begin(RequestKind::Read, 10).end(Some(TIME));
            counters.begin(RequestKind::Flush, 0).end(None);
            if ended % 7 == 0 || ended > 3 * NOTED as u64 {
                let stats = counters.stats();
                assert_eq!((stats.reads.requests, stats.reads.bytes), (ended, 10 * ended));
                assert_eq!((stats.reads.latency.count(), stats.flushes.errors), (ended, ended));
            }
        }
    }

    #[test]
    fn what_is_in_flight_when_its_counts_are_inherited_ends_with_the_heir() {
        let (mut gone, mut heir) = (Counted::default(), Counted::default());
        for bytes in [1, 2, 4] {
            gone.begin(bytes);
        }
        gone.end(RequestKind::Read, 1, Some(TIME));
        heir.inherit(gone);
        let sum = heir.snapshot().into_stats();
        assert_eq!((sum.requests_in_flight, sum.bytes_in_flight), (2, 6));
        heir.end(RequestKind::Read, 2, Some(TIME));
        heir.give_up(4);
        let sum = heir.snapshot().into_stats();
        assert_eq!((sum.reads.requests, sum.reads.bytes), (2, 3));
        assert_eq!((sum.requests_in_flight, sum.bytes_in_flight), (0, 0));
    }
}
