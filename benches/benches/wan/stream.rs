//! Writes to the target without a pause, over one session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use iscsi_initiator::Tuning;
use iscsi_initiator::{Disk, Error, Initiator, Options, Reading, Session};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::grid::Trouble;

/// Bytes of one write: the most immediate data that LIO accepts. So a write is one PDU and one round trip, and
/// writes end as evenly as their bytes arrive.
pub(crate) const WRITE: u64 = PATTERN.len() as u64;
const PATTERN: &[u8] = &[0x5a; 64 * 1024];
/// Writes in flight: as many as LIO accepts in one session. Together they have 4 MiB, more than the largest
/// send buffer of the grid, and more than fits in flight on its longest link.
pub(crate) const DEPTH: u32 = 64;
/// A stream in which no write ends for this time has failed.
const STALL: Duration = Duration::from_secs(30);

/// A stream of writes.
#[derive(Debug)]
pub(crate) struct Stream {
    session: Session,
    writers: JoinSet<()>,
    common: Arc<Common>,
    progress: watch::Receiver<Progress>,
}

/// The progress of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Writes that have succeeded.
    pub(crate) writes: u64,
    /// Time of the last success.
    pub(crate) at: Instant,
    /// Error of a writer that has stopped.
    failure: Option<String>,
}

/// The state that all writers share.
#[derive(Debug)]
struct Common {
    disk: Disk,
    /// Number of writes that were begun.
    begun: AtomicU64,
    stop: AtomicBool,
    progress: watch::Sender<Progress>,
}

impl Stream {
    /// Connects, and begins to write.
    pub(crate) async fn start(url: &str, tuning: Tuning) -> Result<Self, Error> {
        let options = Options::default().with_use_environment(false).with_tuning(tuning);
        let initiator = Initiator::with_options("iqn.2026-01.org.example:bench", options)?;
        let session = initiator.connect(url).await?;
        let disk = session.disk_without_reconnect().await?;
        let begin = Progress { writes: 0, at: Instant::now(), failure: None };
        let (sender, progress) = watch::channel(begin);
        let (begun, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let common = Arc::new(Common { disk, begun, stop, progress: sender });
        let writers = (0..DEPTH).map(|_| Arc::clone(&common).write()).collect();
        Ok(Self { session, writers, common, progress })
    }

    /// Waits at least `time`, and until the rate grows no more: slow start and the kernel's tuning have then
    /// reached their limit.
    pub(crate) async fn wait_for_steady_rate(&self, time: Duration) -> Result<(), Trouble> {
        const MAX_POLLS: u32 = 8;
        sleep(time / 2).await;
        let mut last = self.rate_over(time / 4).await?;
        for _ in 0..MAX_POLLS {
            let next = self.rate_over(time / 4).await?;
            if next <= last * 1.03 {
                break;
            }
            last = next;
        }
        Ok(())
    }

    /// Returns the writes per second over at least `time`.
    async fn rate_over(&self, time: Duration) -> Result<f64, Trouble> {
        let from = self.reach(1).await?;
        sleep(time).await;
        let to = self.reach(from.writes + 1).await?;
        let (writes, time) = from.until(&to);
        Ok(writes as f64 / time.as_secs_f64())
    }

    /// Waits until `writes` writes have ended since the beginning.
    pub(crate) async fn reach(&self, writes: u64) -> Result<Progress, Trouble> {
        let mut progress = self.progress.clone();
        loop {
            let now = progress.borrow_and_update().clone();
            match now.failure {
                Some(failure) => return Err(failure.into()),
                None if now.writes >= writes => return Ok(now),
                None => timeout(STALL, progress.changed())
                    .await
                    .map_err(|_| format!("no write ended for {} s", STALL.as_secs()))??,
            }
        }
    }

    /// Returns a reading of the connection. Asking for the reading wakes the session's task, which then sends
    /// what it can.
    pub(crate) async fn reading(&self) -> Result<Reading, Error> {
        self.session.reading().await
    }

    /// Stops the writers. Each ends its current write first.
    pub(crate) fn stop(&self) {
        self.common.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the writes in flight, and logs out.
    pub(crate) async fn finish(self) -> Result<(), Error> {
        self.stop();
        self.writers.join_all().await;
        self.session.logout().await
    }
}

impl Common {
    /// Runs one writer: it writes from the beginning to the end of the disk, and again from the beginning.
    async fn write(self: Arc<Self>) {
        let places = (self.disk.capacity() / WRITE).max(1);
        while !self.stop.load(Ordering::Relaxed) {
            let place = self.begun.fetch_add(1, Ordering::Relaxed) % places;
            let result = self.disk.write_at(place * WRITE, Bytes::from_static(PATTERN)).await;
            let failed = result.is_err();
            self.progress.send_modify(|progress| progress.count(result));
            if failed {
                return;
            }
        }
    }
}

impl Progress {
    /// Returns the number of writes from this progress to `later`, and the time between the two.
    pub(crate) fn until(&self, later: &Self) -> (u64, Duration) {
        (later.writes - self.writes, later.at.saturating_duration_since(self.at))
    }

    fn count(&mut self, result: Result<(), Error>) {
        match result {
            Ok(()) => (self.writes, self.at) = (self.writes + 1, Instant::now()),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }
}
