//! The measurements of a load.

use std::time::Duration;

use iscsi_initiator::{KindStats, Latency};
use iscsi_tuner::Size;
use serde_json::{Map, Value, json};

use crate::table::Table;

/// The measurements of a load.
#[derive(Debug)]
pub(super) struct Measured {
    /// Time from the first request to the last response.
    pub(super) time: Duration,
    /// Number, bytes and latencies of the requests, from the statistics of the disk.
    pub(super) requests: KindStats,
    /// Time of the flush after the writes.
    pub(super) flush: Option<Duration>,
    /// Number of commands that were sent again.
    pub(super) retries: u64,
    /// Highest number of concurrent sessions.
    pub(super) sessions: u32,
}

impl Measured {
    /// Adds the measurements as rows of a table.
    pub(super) fn add_rows(&self, table: &mut Table) {
        let requests = &self.requests;
        let told: Vec<_> = latencies(&requests.latency)
            .map(|(name, time)| format!("{} {time:.3}", name.replace('_', ".")))
            .into();
        table.push(["sessions", &self.sessions.to_string()]);
        table.push(["time", &format!("{:.2} s", self.time.as_secs_f64())]);
        table.push(["requests", &format!("{}, {:.0} a second", requests.requests, self.iops())]);
        table.push(["bytes", &format!("{}, {:.1} Mbit/s", Size(requests.bytes), self.rate())]);
        table.push(["latency", &format!("{} ms", told.join(", "))]);
        if let Some(flush) = self.flush {
            table.push(["flush", &format!("{:.3} ms", millis(flush))]);
        }
        if self.retries > 0 {
            table.push(["commands sent again", &self.retries.to_string()]);
        }
    }

    /// Returns the measurements as JSON.
    pub(super) fn to_json(&self) -> Value {
        let latencies = latencies(&self.requests.latency);
        let latencies = latencies.map(|(name, time)| (name.to_owned(), json!(time)));
        json!({
            "sessions": self.sessions,
            "seconds": self.time.as_secs_f64(),
            "requests": self.requests.requests,
            "errors": self.requests.errors,
            "bytes": self.requests.bytes,
            "iops": self.iops(),
            "mbit_per_s": self.rate(),
            "latency_ms": latencies.into_iter().collect::<Map<_, _>>(),
            "flush_ms": self.flush.map(millis),
            "retries": self.retries,
        })
    }

    /// Returns the requests per second; 0 if the time is 0.
    fn iops(&self) -> f64 {
        self.per_second(self.requests.requests)
    }

    /// Returns the rate in Mbit/s (10^6 bits); 0 if the time is 0.
    fn rate(&self) -> f64 {
        self.per_second(self.requests.bytes) * 8.0 / 1e6
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

/// Returns the latencies in milliseconds, with their names in JSON.
fn latencies(latency: &Latency) -> [(&'static str, f64); 7] {
    [
        ("min", latency.min()),
        ("mean", latency.mean()),
        ("p50", latency.quantile(0.5)),
        ("p90", latency.quantile(0.9)),
        ("p99", latency.quantile(0.99)),
        ("p99_9", latency.quantile(0.999)),
        ("max", latency.max()),
    ]
    .map(|(name, time)| (name, millis(time)))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
