//! How much is done, and how fast it went.

use std::pin::pin;
use std::time::Duration;

use iscsi_copy::Control;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::progress::Progress;
use crate::rate::mbit_per_s;

/// How often the display is refreshed.
const REFRESH: Duration = Duration::from_millis(100);
/// How many refreshes make a sample: one a second.
const REFRESHES: u32 = 10;

/// Watches a copy, or a look at what was copied.
#[derive(Clone, Debug)]
pub struct Meter(Control);

impl Meter {
    /// Watches what this is the hand on.
    pub const fn new(control: Control) -> Self {
        Self(control)
    }

    /// How many bytes are done.
    pub fn bytes(&self) -> u64 {
        self.0.progress().done
    }

    /// Waits for `work`, shows how it goes, and returns with its result the rate of each full
    /// second, Mbit/s.
    pub async fn follow<T>(
        &self,
        progress: &Progress,
        work: impl Future<Output = T>,
    ) -> (T, Vec<f64>) {
        let mut work = pin!(work);
        let mut samples = Samples::new(self.bytes());
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for tick in 0.. {
            tokio::select! {
                biased;
                result = &mut work => {
                    progress.finish(self.bytes());
                    return (result, samples.rates);
                }
                _ = ticks.tick() => {}
            }
            progress.refresh(self.bytes());
            if tick > 0 && tick % REFRESHES == 0 {
                progress.line(self.bytes(), samples.take(self.bytes()));
            }
        }
        (work.await, samples.rates)
    }
}

/// The rates of the seconds so far.
#[derive(Debug)]
struct Samples {
    since: Instant,
    bytes: u64,
    rates: Vec<f64>,
}

impl Samples {
    fn new(bytes: u64) -> Self {
        Self { since: Instant::now(), bytes, rates: Vec::new() }
    }

    /// Ends a second.
    fn take(&mut self, bytes: u64) -> f64 {
        let now = Instant::now();
        let rate = mbit_per_s(bytes.saturating_sub(self.bytes), now - self.since);
        (self.since, self.bytes) = (now, bytes);
        self.rates.push(rate);
        rate
    }
}
