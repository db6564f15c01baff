//! Measures concurrent flows whose rates are limited at the initiator: counts the bytes that each flow moves,
//! several times per second, beside the rates that each flow should have.
//!
//! Each flow has its own portal, so the target's host can count the flow's bytes: TCP payload per port.

mod block_copy;
mod counters;
mod open_iscsi;
mod portals;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::{sleep_until, timeout};

use crate::error::Error;
use crate::peers::Bench;
use crate::result::Outcome;
use crate::scenario::{Deed, Flows, Order, Point, Who};
use crate::testbed::Testbed;
use counters::Counters;
use portals::port;

pub use portals::words;

/// Interval of the counts.
const STEP: Duration = Duration::from_millis(250);
/// A flow counts as running after this number of bytes.
const RUNS: u64 = 64 << 10;
/// Time limit until all flows run.
const BEGIN: Duration = Duration::from_secs(30);

/// The result of a measurement of flows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsFigure {
    /// Names of the flows.
    pub flows: Vec<String>,
    /// Times of the counts, seconds after the first bytes of all flows.
    pub seconds: Vec<f64>,
    /// Bytes of TCP payload that each flow had moved at each count.
    pub bytes: Vec<Vec<u64>>,
    /// The scripted changes that were made: the time of each, seconds after the first bytes of all flows, and its
    /// command.
    pub orders: Vec<(f64, String)>,
    /// Rates that the flows should have, Mbit/s: a list for each period (before the first change, between changes,
    /// after the last one), with a rate for each flow. A negative number stands for any rate.
    pub expected: Vec<Vec<f64>>,
}

/// The running flows.
enum Running {
    BlockCopy(block_copy::Copies),
    OpenIscsi(open_iscsi::Disks),
}

impl Running {
    async fn obey(&self, deed: &Deed) -> Result<(), Error> {
        match self {
            Self::BlockCopy(copies) => copies.obey(deed).await,
            Self::OpenIscsi(disks) => disks.obey(deed).await,
        }
    }

    async fn end(self) {
        match self {
            Self::BlockCopy(copies) => copies.end().await,
            Self::OpenIscsi(disks) => disks.end().await,
        }
    }
}

/// Runs the flows and counts their bytes.
///
/// # Errors
/// [`Outcome::Failed`], or [`Outcome::Skipped`] if the program that runs them is missing.
pub async fn measure(
    point: &Point,
    flows: &Flows,
    bench: &Bench,
    testbed: &Testbed,
) -> Result<FlowsFigure, Outcome> {
    let failed = |error: Error| Outcome::Failed(error.to_string());
    let running = match flows.who {
        Who::OpenIscsi => Running::OpenIscsi(open_iscsi::Disks::start(point, flows, bench).await?),
        Who::BlockCopy | Who::Iperf3 | Who::Libiscsi | Who::QemuImg | Who::Program => {
            Running::BlockCopy(block_copy::Copies::start(flows, bench).await?)
        }
    };
    let figure = count(flows, &running).await;
    // Remove the limits of the link, so that requests in flight end quickly.
    let released = testbed.set_link(&[]).await;
    running.end().await;
    released.map_err(failed)?;
    figure.map_err(failed)
}

async fn count(flows: &Flows, running: &Running) -> Result<FlowsFigure, Error> {
    let ports: Vec<_> = (0..flows.flows.len()).map(port).collect();
    let mut counters = Counters::new(ports, flows.direction);
    let begun = timeout(BEGIN, async {
        while counters.read_bytes().await?.iter().any(|bytes| *bytes < RUNS) {}
        Ok(())
    });
    begun.await.unwrap_or_else(|_| {
        let message = "not every flow began".to_owned();
        Err(Error::Tool { program: flows.who.name().to_owned(), message })
    })?;
    let start = Instant::now();
    let mut figure = FlowsFigure {
        flows: flows.flows.iter().map(|flow| flow.name.clone()).collect(),
        seconds: Vec::new(),
        bytes: Vec::new(),
        orders: Vec::new(),
        expected: flows.expect.clone(),
    };
    let mut orders = flows.orders.iter().peekable();
    for step in 0.. {
        sleep_until((start + step * STEP).into()).await;
        let now = start.elapsed();
        figure.seconds.push(now.as_secs_f64());
        figure.bytes.push(counters.read_bytes().await?);
        if now >= Duration::from_secs(flows.seconds) {
            break;
        }
        let is_due = |order: &&Order| now >= Duration::from_secs(order.at);
        if let Some(order) = orders.next_if(is_due) {
            running.obey(&order.order.parse().map_err(Error::Usage)?).await?;
            figure.orders.push((start.elapsed().as_secs_f64(), order.order.clone()));
        }
    }
    Ok(figure)
}

impl FlowsFigure {
    /// Returns the rate of a flow in each step, Mbit/s, with the time of the step's end in seconds.
    pub fn rates(&self, flow: usize) -> Vec<(f64, f64)> {
        let moved: Vec<_> = self.bytes.iter().filter_map(|bytes| bytes.get(flow)).collect();
        let steps = self.seconds.windows(2).zip(moved.windows(2));
        steps
            .filter_map(|(times, bytes)| match (times, bytes) {
                ([from, to], [before, after]) => {
                    let bits = after.saturating_sub(**before) as f64 * 8.0;
                    Some((*to, bits / (to - from) / 1e6))
                }
                _ => None,
            })
            .collect()
    }

    /// Returns the mean rates of a flow before the first scripted change, between changes, and after the last
    /// one, Mbit/s. The first second of each of these periods is left out.
    pub fn means(&self, flow: usize) -> Vec<f64> {
        let begins = std::iter::once(0.0).chain(self.orders.iter().map(|(at, _)| *at));
        let ends = self.orders.iter().map(|(at, _)| *at).chain([f64::INFINITY]);
        begins.zip(ends).map(|(begin, end)| self.mean(flow, begin + SETTLED, end)).collect()
    }

    fn mean(&self, flow: usize, begin: f64, end: f64) -> f64 {
        let counted = self.seconds.iter().zip(&self.bytes);
        let mut within = counted.filter(|(at, _)| (begin..=end).contains(*at));
        let bytes = |bytes: &Vec<u64>| bytes.get(flow).copied().unwrap_or_default();
        let (Some(first), Some(last)) = (within.next(), within.next_back()) else { return 0.0 };
        bytes(last.1).saturating_sub(bytes(first.1)) as f64 * 8.0 / (last.0 - first.0) / 1e6
    }
}

/// Seconds after a scripted change that do not count: requests from before the change may still move bytes.
const SETTLED: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_between_the_orders() {
        // 8 Mbit/s up to the change at 4 s, then nothing.
        let bytes = |second: u64| vec![second.min(4) * 1_000_000];
        let figure = FlowsFigure {
            flows: vec!["one".to_owned()],
            seconds: (0..10).map(f64::from).collect(),
            bytes: (0..10).map(bytes).collect(),
            orders: vec![(4.0, "pause one".to_owned())],
            expected: vec![vec![8.0], vec![0.0]],
        };
        assert_eq!(figure.means(0), [8.0, 0.0]);
        assert_eq!(
            figure.rates(0)[..5],
            [(1.0, 8.0), (2.0, 8.0), (3.0, 8.0), (4.0, 8.0), (5.0, 0.0)]
        );
    }
}
