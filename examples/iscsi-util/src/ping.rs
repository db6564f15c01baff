//! Measures round trips: NOP-Out and NOP-In (RFC 7143 §11.18).

use std::time::Duration;

use clap::Args;
use iscsi_examples_common::help::heading;
use iscsi_initiator::{Error as InitiatorError, Session};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::connector::Connector;
use crate::error::Error;
use crate::output::eprint_lines;
use crate::report::Report;

/// Longest pause between two pings, seconds.
const MAX_INTERVAL: f64 = 3600.0;

/// The options of `ping`.
#[derive(Clone, Debug, Args)]
pub struct Ping {
    /// Target: iscsi://HOST/TARGET.
    ///
    /// A unit in the URL is ignored.
    pub url: String,
    /// Number of pings, 1 to 1000000.
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = heading::MEASUREMENT)]
    pub count: u32,
    /// Seconds from one ping to the next, 0 to 3600.
    ///
    /// A ping waits for the answer to the one before.
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval, help_heading = heading::MEASUREMENT)]
    pub interval: Duration,
    /// Print the result only, not each ping.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub quiet: bool,
}

impl Ping {
    /// Sends the pings to the target.
    ///
    /// # Errors
    /// If there is no session. If a ping fails later, the error is in the report.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let work = async |session: &Session, _: &_| {
            let mut times = Vec::new();
            let end = connector.unless(self.send(session, &mut times)).await;
            let end = end.and_then(|result| result.map_err(Error::from)).err();
            Ok(report(times).ending(end))
        };
        connector.session(&self.url, work).await
    }

    async fn send(
        &self,
        session: &Session,
        times: &mut Vec<Duration>,
    ) -> Result<(), InitiatorError> {
        let mut next = Instant::now();
        for number in 1..=self.count {
            sleep_until(next).await;
            next = Instant::now() + self.interval;
            let time = session.ping().await?;
            times.push(time);
            if !self.quiet {
                eprint_lines(&format!("{number}: {:.3} ms\n", millis(time)));
            }
        }
        Ok(())
    }
}

fn report(mut times: Vec<Duration>) -> Report {
    let in_order: Vec<_> = times.iter().copied().map(millis).collect();
    times.sort_unstable();
    let quantile = |percent| quantile(&times, percent).map(millis);
    let told = [("min", 0), ("median", 50), ("p99", 99), ("max", 100)]
        .map(|(name, percent)| (name, quantile(percent)));
    let text: String = told
        .iter()
        .filter_map(|(name, time)| Some(format!(", {name} {:.3} ms", (*time)?)))
        .collect();
    let members = json!({
        "answers": times.len(),
        "min_ms": quantile(0),
        "median_ms": quantile(50),
        "p99_ms": quantile(99),
        "max_ms": quantile(100),
        "pings_ms": in_order,
    });
    Report::new(format!("{} answers{text}\n", times.len()), members)
}

/// Returns a percentile (nearest rank): the smallest time such that at least `percent` percent of all times are
/// not longer.
fn quantile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=MAX_INTERVAL).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("write a number of seconds from 0 to {MAX_INTERVAL}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        let at = |percent| quantile(&times, percent).map(|time| time.as_millis());
        assert_eq!((at(0), at(50), at(99), at(100)), (Some(1), Some(100), Some(198), Some(200)));
        assert_eq!(quantile(&times[..1], 99), Some(times[0]));
        assert_eq!(quantile(&[], 50), None);
    }
}
