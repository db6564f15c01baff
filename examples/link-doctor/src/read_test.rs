//! Runs the read test: it keeps the planned number of reads in flight for the given time, and reads the whole
//! unit, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use iscsi_initiator::{Disk, Error, Reading, Session};
use iscsi_tuner::{Diagnosis, Plan, Rate};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::args::Depth;
use crate::progress;
use crate::stop::Stop;

/// Time limit for the reads in flight at the end of the test.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two pings while reads are in flight.
const PINGS_APART: Duration = Duration::from_millis(500);

/// The length and the number of the reads of a read test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Workload {
    /// Bytes of one read, a whole number of blocks, not 0.
    pub io_size: usize,
    /// Reads in flight, not 0.
    pub depth: u32,
    /// Reads in flight that the plan would have, if the target accepted any number of commands.
    pub wanted: u32,
    /// The number of commands that the target accepts, if it reports one.
    pub window: Option<u32>,
}

/// The result of the read test.
#[derive(Debug)]
pub struct ReadTest {
    /// The length and the number of the reads.
    pub workload: Workload,
    /// Duration of the read test.
    pub time: Duration,
    /// Bytes read during the test.
    pub bytes: u64,
    /// The rate of each full second; `None` if nothing was read in that second.
    pub samples: Vec<Option<Rate>>,
    /// Round trips of pings while reads were in flight. If the last ping has no response, its time up to the
    /// end of the test is included.
    pub pings: Vec<Duration>,
    /// The readings of the session before the first read and after the last one.
    pub readings: (Reading, Reading),
}

impl Workload {
    /// Adapts a plan to the unit: no read is longer than the unit, or than the unit accepts, and the planned
    /// number of bytes is in flight. Returns `None` if the unit has no bytes.
    #[must_use]
    pub fn new(plan: &Plan, depth: Depth, window: Option<u32>, disk: &Disk) -> Option<Self> {
        let planned = wanted(plan);
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
        let under_way = io_size.saturating_mul(planned.into());
        let wanted = u32::try_from(under_way.div_ceil(length as u64)).unwrap_or(u32::MAX);
        let wanted = wanted.max(planned).clamp(1, Depth::MAX);
        let window = window.map(|commands| commands.max(1));
        let depth = match depth {
            Depth::Fixed(depth) => depth,
            // Shorter reads need a larger number in flight, which must not exceed the target's command window.
            Depth::Auto => wanted.min(window.unwrap_or(Depth::MAX)),
        };
        Some(Self { io_size: length, depth, wanted, window })
    }

    /// Returns the bytes in flight. Reads that exceed the target's command window do not count, because they
    /// wait in this program.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.bytes(self.depth.min(self.window.unwrap_or(u32::MAX)))
    }

    /// Returns the bytes that the plan would have in flight if the target accepted any number of commands.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.bytes(self.wanted)
    }

    /// Returns the target's command window, if it limits the number of reads in flight.
    #[must_use]
    pub fn full_window(&self) -> Option<u32> {
        self.window.filter(|window| self.depth >= *window)
    }

    fn bytes(&self, reads: u32) -> u64 {
        (self.io_size as u64).saturating_mul(reads.into())
    }
}

impl ReadTest {
    /// Reads for the given time, or until an error or a request to stop. Returns the measurements, and the
    /// error if there was one.
    ///
    /// # Errors
    /// If the session has ended before the first read.
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

    /// Once a second, takes a reading and prints a line, until the time is over.
    async fn watch(&mut self, session: &Session, flow: &Flow, time: Duration) -> Option<Error> {
        const SECOND: Duration = Duration::from_secs(1);
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        let end = Instant::now() + time;
        loop {
            tokio::select! {
                // At the end, a tick has priority over the timeout, so that the last second has a sample.
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

    /// Takes the last reading. If the session has ended, the reading before it stays.
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

    /// Returns the mean rate of the test; `None` if nothing was read.
    #[must_use]
    pub fn goodput(&self) -> Option<Rate> {
        rate(self.bytes, self.time)
    }

    /// Returns the steady rate: that of the median second, or that of the whole time if there were few seconds
    /// or few reads per second.
    #[must_use]
    pub fn steady(&self) -> Option<Rate> {
        let reads = self.bytes / self.workload.io_size.max(1) as u64;
        steady(&self.samples, reads).or_else(|| self.goodput())
    }

    /// Returns the median round trip while reads were in flight.
    #[must_use]
    pub fn loaded(&self) -> Option<Duration> {
        median(&self.pings)
    }

    /// Returns what the session has waited for during the test.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let (before, after) = &self.readings;
        after.diagnose_since(before)
    }
}

/// The state that the readers share.
#[derive(Debug)]
struct Flow {
    io_size: usize,
    /// Number of reads that fit on the unit without an overlap.
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

    /// Returns the offset of the next read: sequential, and from the beginning again after the end of the unit.
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

/// Reads one place of the unit after the other into one buffer, until the flow is stopped.
async fn read(flow: Arc<Flow>, disk: Disk) -> Result<(), Error> {
    let disk = disk.with_max_transfer(flow.io_size);
    let mut buffer = BytesMut::zeroed(flow.io_size);
    while !flow.stop.load(Ordering::Relaxed) {
        buffer = disk.read_into(flow.next_offset(), buffer).await?;
        flow.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits for the first error of a reader. If no reader fails, this never returns.
async fn first_error(readers: &mut JoinSet<Result<(), Error>>) -> Error {
    while let Some(ended) = readers.join_next().await {
        if let Ok(Err(error)) = ended {
            return error;
        }
    }
    std::future::pending().await
}

/// Waits a moment for the reads in flight. The session aborts those that take longer.
async fn drain(mut readers: JoinSet<Result<(), Error>>) {
    let ended = async { while readers.join_next().await.is_some() {} };
    // The result of the timeout is ignored: reads that take longer are not waited for.
    let _ = timeout(GRACE, ended).await;
}

/// The pings that are sent while reads are in flight.
#[derive(Debug, Default)]
struct Pings {
    samples: Vec<Duration>,
    /// Time at which the ping in flight was sent.
    begun: Option<Instant>,
}

impl Pings {
    /// Returns all round trips. A ping without a response is included with the time that it was waited for.
    fn conclude(mut self) -> Vec<Duration> {
        self.samples.extend(self.begun.map(|begun| begun.elapsed()));
        self.samples
    }
}

/// Sends pings forever. An error is ignored, because the reads report it as well.
async fn ping(session: &Session, pings: &mut Pings) {
    loop {
        sleep(PINGS_APART).await;
        pings.begun = Some(Instant::now());
        pings.samples.extend(session.ping().await.ok());
        pings.begun = None;
    }
}

/// Returns the length of a plan's reads, and the number of reads that the plan would have in flight without the
/// limit of the target's command window.
fn wanted(plan: &Plan) -> (u64, u32) {
    let mut free = plan.clone();
    free.terms.window = None;
    let size = plan.read_size.value;
    (size, free.read_depth_for(size))
}

/// Returns the rate of `bytes` over `time`; `None` if `bytes` is 0.
fn rate(bytes: u64, time: Duration) -> Option<Rate> {
    (bytes > 0 && !time.is_zero()).then(|| Rate::of(bytes, time))
}

/// Returns the rate of the median second. `reads` is the total number of reads. In each second a whole number
/// of reads ends, so with few reads per second the median could be wrong by one read: then this returns `None`.
fn steady(seconds: &[Option<Rate>], reads: u64) -> Option<Rate> {
    const SECONDS: usize = 3;
    const READS_EACH: u64 = 10;
    let tells = seconds.len() >= SECONDS && reads >= READS_EACH * seconds.len() as u64;
    if tells { median(seconds).flatten() } else { None }
}

/// Returns the median. Of two values in the middle, it is the larger one.
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
    use iscsi_initiator::Tuning;
    use iscsi_tuner::{Limits, Measurement, Rtt, TransferTerms, plan};

    use super::*;

    const MIB: usize = 1 << 20;

    fn fit(depth: Depth, window: Option<u32>, longest: usize, capacity: u64) -> Option<Workload> {
        Workload::fit((MIB as u64, 8), depth, window, (longest, capacity))
    }

    #[test]
    fn a_large_unit_is_read_as_planned() {
        let workload = fit(Depth::Auto, Some(64), MIB, 1 << 40).unwrap();
        assert_eq!((workload.io_size, workload.depth), (MIB, 8));
        assert_eq!((workload.under_way(), workload.wanted()), (8 << 20, 8 << 20));
        assert_eq!(workload.full_window(), None);
    }

    #[test]
    fn what_the_target_does_not_take_is_not_under_way() {
        for (depth, shown) in [(Depth::Auto, 4), (Depth::Fixed(6), 6)] {
            let workload = fit(depth, Some(4), MIB, 1 << 40).unwrap();
            assert_eq!((workload.depth, workload.full_window()), (shown, Some(4)));
            assert_eq!((workload.under_way(), workload.wanted()), (4 << 20, 8 << 20));
        }
        let shallow = fit(Depth::Fixed(1), Some(4), MIB, 1 << 40).unwrap();
        assert_eq!((shallow.under_way(), shallow.full_window()), (1 << 20, None));
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
    fn a_narrow_command_window_is_no_part_of_what_is_wanted() {
        let mut measurement = Measurement::default();
        measurement.rtt = Rtt::of([Duration::from_millis(1); 10]);
        measurement.terms = Some(TransferTerms::new(8192, 262_144, 1, Some(1)));
        let plan = plan(&measurement, &Limits::default(), &Tuning::default());
        assert_eq!(plan.read_depth.value, 1);
        let planned = wanted(&plan);
        let workload = Workload::fit(planned, Depth::Auto, Some(1), (64 << 20, 1 << 40)).unwrap();
        assert_eq!(workload.depth, 1);
        assert!(workload.under_way() < workload.wanted(), "{workload:?}");
    }

    #[test]
    fn a_depth_by_the_user_counts() {
        let workload = fit(Depth::Fixed(3), Some(64), 4096, 1 << 40).unwrap();
        assert_eq!((workload.io_size, workload.depth), (4096, 3));
    }

    #[test]
    fn a_unit_shorter_than_a_read_is_read_whole() {
        let workload = fit(Depth::Auto, Some(64), MIB, 4096).unwrap();
        assert_eq!((workload.io_size, workload.depth), (4096, 64));
        assert_eq!(fit(Depth::Auto, Some(64), MIB, 0), None);
    }

    #[test]
    fn a_median_second_tells_where_many_reads_end_in_each() {
        let seconds = ["20mbit", "90mbit", "91mbit", "92mbit"].map(|rate| rate.parse().ok());
        assert_eq!(steady(&seconds, 40), "91mbit".parse().ok());
        // With fewer than ten reads per second the result is `None`: at 8 Mbit/s, with reads of 1 MiB, a second
        // has one read or none.
        assert_eq!(steady(&seconds, 39), None);
        assert_eq!(steady(&seconds[..2], 40), None);
        assert_eq!(steady(&[None, None, seconds[0]], 40), None);
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
