//! The read test: as many reads under way as the plan says, for so long, over and over the unit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use iscsi_initiator::tuning::{Bandwidth, Diagnosis};
use iscsi_initiator::{Disk, Error, Reading, Session};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::args::Depth;
use crate::progress;
use crate::stop::Stop;

/// How long reads that are under way may still take at the end.
const GRACE: Duration = Duration::from_secs(2);
/// The pause between two pings while reads are under way.
const PINGS_APART: Duration = Duration::from_millis(500);

/// How a unit is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Workload {
    /// Bytes of one read, a whole number of blocks, not 0.
    pub io_size: usize,
    /// Reads under way at once, not 0.
    pub depth: u32,
}

/// What came of it.
#[derive(Debug)]
pub struct ReadTest {
    /// How it was read.
    pub workload: Workload,
    /// How long.
    pub time: Duration,
    /// Bytes read in that time.
    pub bytes: u64,
    /// The rate of each full second; `None` if nothing arrived.
    pub samples: Vec<Option<Bandwidth>>,
    /// Round trips while reads were under way; of a last one without an answer, how long that was
    /// awaited.
    pub pings: Vec<Duration>,
    /// The session before the first read, and the last reading of it.
    pub readings: (Reading, Reading),
}

impl Workload {
    /// What a plan says, brought to what the unit is: no read is longer than the unit or than it
    /// takes at once, and as many bytes are under way as planned. `None` if the unit holds nothing.
    #[must_use]
    pub fn new(
        planned: (u64, u32),
        depth: Depth,
        window: Option<u32>,
        disk: &Disk,
    ) -> Option<Self> {
        let longest = disk.clone().with_max_transfer(as_usize(planned.0)).max_transfer();
        Self::fit(planned, depth, window, (longest, disk.capacity()))
    }

    fn fit(
        (io_size, planned): (u64, u32),
        depth: Depth,
        window: Option<u32>,
        (longest, capacity): (usize, u64),
    ) -> Option<Self> {
        let length = longest.min(as_usize(capacity));
        if length == 0 {
            return None;
        }
        let depth = match depth {
            Depth::Fixed(depth) => depth,
            Depth::Auto => {
                let under_way = io_size.saturating_mul(planned.into());
                let wanted = u32::try_from(under_way.div_ceil(length as u64)).unwrap_or(u32::MAX);
                // A short unit is no reason for more reads than the target takes at once.
                wanted.max(planned).clamp(1, window.unwrap_or(Depth::MAX).clamp(1, Depth::MAX))
            }
        };
        Some(Self { io_size: length, depth })
    }

    /// Bytes under way at once.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        (self.io_size as u64).saturating_mul(self.depth.into())
    }
}

impl ReadTest {
    /// Reads for so long, or until there is an error or a wish to stop; what was measured by then is
    /// returned with the error.
    ///
    /// # Errors
    /// When the session has ended before the first read.
    pub async fn run(
        session: &Session,
        disk: &Disk,
        workload: Workload,
        time: Duration,
        stop: &Stop,
    ) -> Result<(Self, Option<Error>), Error> {
        let before = session.reading().await?;
        let mut test = Self {
            workload,
            time: Duration::ZERO,
            bytes: 0,
            samples: Vec::new(),
            pings: Vec::new(),
            readings: (before.clone(), before),
        };
        let flow = Arc::new(Flow::new(disk, workload));
        let mut readers = JoinSet::new();
        for _ in 0..workload.depth {
            readers.spawn(read(Arc::clone(&flow), disk.clone()));
        }
        let mut pings = Pings::default();
        let error = tokio::select! {
            biased;
            () = stop.requested() => None,
            error = first_error(&mut readers) => Some(error),
            error = test.watch(session, &flow, time) => error,
            () = ping(session, &mut pings) => None,
        };
        test.pings = pings.conclude();
        stop.hurry(test.conclude(session, &flow)).await;
        flow.stop();
        stop.hurry(drain(readers)).await;
        Ok((test, error))
    }

    /// Takes a reading and shows a line each second, until the time is over.
    async fn watch(&mut self, session: &Session, flow: &Flow, time: Duration) -> Option<Error> {
        const SECOND: Duration = Duration::from_secs(1);
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        let end = Instant::now() + time;
        loop {
            tokio::select! {
                // The last second is a second as well.
                biased;
                _ = ticks.tick() => {}
                () = sleep_until(end) => return None,
            }
            if let Err(error) = self.sample(session, flow).await {
                return Some(error);
            }
        }
    }

    async fn sample(&mut self, session: &Session, flow: &Flow) -> Result<(), Error> {
        let reading = session.reading().await?;
        let (bytes, since) = (flow.bytes(), self.readings.1.at());
        let rate = rate(bytes - self.bytes, reading.at().saturating_duration_since(since));
        self.samples.push(rate);
        self.take(reading, bytes);
        let rtt = self.readings.1.tcp_info().smoothed_rtt.unwrap_or_default();
        progress::reading(self.time, self.bytes, rate, rtt);
        Ok(())
    }

    /// The last reading; a session that has ended gives none, and what was taken before stands.
    async fn conclude(&mut self, session: &Session, flow: &Flow) {
        if let Ok(reading) = session.reading().await {
            self.take(reading, flow.bytes());
        }
    }

    fn take(&mut self, reading: Reading, bytes: u64) {
        self.time = reading.at().saturating_duration_since(self.readings.0.at());
        self.bytes = bytes;
        self.readings.1 = reading;
    }

    /// Payload by time; `None` before the first reading of running reads.
    #[must_use]
    pub fn goodput(&self) -> Option<Bandwidth> {
        rate(self.bytes, self.time)
    }

    /// The rate once it was steady: that of the median second, or the whole if there were few.
    #[must_use]
    pub fn steady(&self) -> Option<Bandwidth> {
        const ENOUGH: usize = 3;
        if self.samples.len() < ENOUGH { self.goodput() } else { median(&self.samples).flatten() }
    }

    /// The typical round trip while reads were under way: the median.
    #[must_use]
    pub fn loaded(&self) -> Option<Duration> {
        median(&self.pings)
    }

    /// What the session waited for.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let (before, after) = &self.readings;
        after.diagnose_since(before)
    }
}

/// The readers' common state.
#[derive(Debug)]
struct Flow {
    io_size: usize,
    /// Reads that the unit has room for.
    places: u64,
    next: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Flow {
    fn new(disk: &Disk, workload: Workload) -> Self {
        Self {
            io_size: workload.io_size,
            places: (disk.capacity() / workload.io_size.max(1) as u64).max(1),
            next: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Where the next read begins: one behind the other, and again from the beginning.
    fn next_offset(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) % self.places * self.io_size as u64
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Reads one piece after the other, into one buffer, until told to stop.
async fn read(flow: Arc<Flow>, disk: Disk) -> Result<(), Error> {
    let disk = disk.with_max_transfer(flow.io_size);
    let mut buffer = BytesMut::zeroed(flow.io_size);
    while !flow.stop.load(Ordering::Relaxed) {
        buffer = disk.read_into(flow.next_offset(), buffer).await?;
        flow.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits for the first reader that fails; for ever if none does.
async fn first_error(readers: &mut JoinSet<Result<(), Error>>) -> Error {
    while let Some(ended) = readers.join_next().await {
        if let Ok(Err(error)) = ended {
            return error;
        }
    }
    std::future::pending().await
}

/// Lets reads that are under way end, but not for long: the session aborts the rest.
async fn drain(mut readers: JoinSet<Result<(), Error>>) {
    let ended = async { while readers.join_next().await.is_some() {} };
    // Nothing is waited for any more.
    let _ = timeout(GRACE, ended).await;
}

/// Pings while reads are under way.
#[derive(Debug, Default)]
struct Pings {
    samples: Vec<Duration>,
    /// When the one began that has no answer yet.
    begun: Option<Instant>,
}

impl Pings {
    /// All samples; a ping without an answer has taken at least as long as it was awaited.
    fn conclude(mut self) -> Vec<Duration> {
        self.samples.extend(self.begun.map(|begun| begun.elapsed()));
        self.samples
    }
}

/// Pings while reads are under way, for ever. A session that has ended is told by its reads.
async fn ping(session: &Session, pings: &mut Pings) {
    loop {
        sleep(PINGS_APART).await;
        pings.begun = Some(Instant::now());
        pings.samples.extend(session.ping().await.ok());
        pings.begun = None;
    }
}

/// The rate of so many bytes in so much time; `None` of nothing.
fn rate(bytes: u64, time: Duration) -> Option<Bandwidth> {
    (bytes > 0 && !time.is_zero()).then(|| Bandwidth::of(bytes, time))
}

/// The one in the middle; of two the larger.
fn median<T: Copy + Ord>(values: &[T]) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn fit(depth: Depth, window: Option<u32>, longest: usize, capacity: u64) -> Option<Workload> {
        Workload::fit((MIB as u64, 8), depth, window, (longest, capacity))
    }

    #[test]
    fn a_large_unit_is_read_as_planned() {
        let workload = fit(Depth::Auto, Some(64), MIB, 1 << 40);
        assert_eq!(workload, Some(Workload { io_size: MIB, depth: 8 }));
        assert_eq!(workload.map(|workload| workload.under_way()), Some(8 << 20));
    }

    #[test]
    fn shorter_reads_are_more_within_the_window() {
        let depth = |window, longest| fit(Depth::Auto, window, longest, 1 << 40).unwrap().depth;
        assert_eq!(depth(Some(64), 262_144), 32);
        assert_eq!(depth(Some(64), 4096), 64);
        assert_eq!(depth(None, 512), Depth::MAX);
        assert_eq!(depth(Some(0), MIB), 1);
    }

    #[test]
    fn a_depth_by_the_user_counts() {
        let workload = fit(Depth::Fixed(3), Some(64), 4096, 1 << 40);
        assert_eq!(workload, Some(Workload { io_size: 4096, depth: 3 }));
    }

    #[test]
    fn a_unit_shorter_than_a_read_is_read_whole() {
        let workload = fit(Depth::Auto, Some(64), MIB, 4096);
        assert_eq!(workload, Some(Workload { io_size: 4096, depth: 64 }));
        assert_eq!(fit(Depth::Auto, Some(64), MIB, 0), None);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[5, 1, 9]), Some(5));
        assert_eq!(median(&[2, 1]), Some(2));
        assert_eq!(median::<u32>(&[]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_without_an_answer_counts_as_long_as_it_was_awaited() {
        let mut pings = Pings { samples: vec![Duration::from_millis(3)], begun: None };
        pings.begun = Some(Instant::now());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(pings.conclude(), [Duration::from_millis(3), Duration::from_secs(4)]);
        assert!(Pings::default().conclude().is_empty());
    }

    #[test]
    fn nothing_has_no_rate() {
        assert_eq!(rate(0, Duration::from_secs(1)), None);
        assert_eq!(rate(1, Duration::ZERO), None);
        assert_eq!(rate(125_000, Duration::from_secs(1)), "1mbit".parse().ok());
    }

    #[test]
    fn reads_go_round_the_unit() {
        let flow = Flow {
            io_size: 4096,
            places: 3,
            next: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        let offsets: Vec<_> = (0..5).map(|_| flow.next_offset()).collect();
        assert_eq!(offsets, [0, 4096, 8192, 0, 4096]);
    }
}
