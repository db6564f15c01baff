//! Measures the progress of a copy, and its rate.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use iscsi_copy::Control;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::end::UnitEnd;
use crate::ends::Ends;
use crate::progress::Progress;
use crate::progress::activity::{Activity, Watch};
use crate::progress::json_lines::JsonLines;
use crate::progress::status::{Status, mbit_per_s};

/// Interval of updates of the display.
const REFRESH: Duration = Duration::from_millis(100);
/// Number of updates per sample of the rate: one sample a second.
const REFRESHES: u32 = 10;

/// Shows the progress of a copy or of a verification.
#[derive(Debug)]
pub struct Meter<'a> {
    control: Control,
    ends: &'a Ends,
    lines: Option<Arc<JsonLines>>,
}

impl<'a> Meter<'a> {
    /// Creates the meter of a copy. `control` reports the progress of that copy.
    pub(crate) const fn new(
        control: Control,
        ends: &'a Ends,
        lines: Option<Arc<JsonLines>>,
    ) -> Self {
        Self { control, ends, lines }
    }

    /// Waits for `work` and shows its progress. Returns the result, and the rate of each full second in Mbit/s,
    /// without the bytes of an earlier run.
    pub(crate) async fn follow<T>(
        &self,
        progress: &Progress,
        work: impl Future<Output = T>,
    ) -> (T, Vec<f64>) {
        let mut work = pin!(work);
        let mut samples = Samples::new();
        let mut lines = Samples::new();
        let mut watch = Watch::new();
        let start = samples.since;
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for tick in 0.. {
            tokio::select! {
                biased;
                result = &mut work => {
                    progress.finish();
                    return (result, samples.rates);
                }
                _ = ticks.tick() => {}
            }
            let now = self.control.progress();
            let is_paused = self.control.is_paused();
            let activity = watch.update(&now, is_paused, || self.ends.awaited());
            progress.refresh(&now, activity, start.elapsed());
            let bytes = now.done.saturating_sub(now.resumed);
            let status = |rate| self.status(now, start.elapsed(), rate, activity);
            if progress.line_interval().is_some_and(|time| lines.since.elapsed() >= time) {
                progress.print_status(&status(lines.take(bytes)));
            }
            if tick > 0 && tick % REFRESHES == 0 {
                let rate = samples.take(bytes);
                if let Some(lines) = &self.lines {
                    lines.put(&status(rate).to_json(progress.title()));
                }
            }
        }
        (work.await, samples.rates)
    }

    fn status(
        &self,
        progress: iscsi_copy::Progress,
        elapsed: Duration,
        rate: f64,
        activity: Activity,
    ) -> Status {
        let sessions = self.ends.units().map(|unit| unit.sessions().len()).sum();
        let round_trip = self.ends.units().find_map(UnitEnd::round_trip);
        Status { progress, elapsed, rate, activity, sessions, round_trip }
    }
}

/// Computes rates, each since the previous sample.
#[derive(Debug)]
struct Samples {
    since: Instant,
    bytes: u64,
    rates: Vec<f64>,
}

impl Samples {
    fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, rates: Vec::new() }
    }

    /// Returns the rate since the previous sample, in Mbit/s.
    fn take(&mut self, bytes: u64) -> f64 {
        let now = Instant::now();
        let rate = mbit_per_s(bytes.saturating_sub(self.bytes), now - self.since);
        (self.since, self.bytes) = (now, bytes);
        self.rates.push(rate);
        rate
    }
}
