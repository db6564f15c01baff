//! Tests of a diagnosis: the limiter, its share of the time, the evidence, and the setting that lifts the
//! limit.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

mod buffers;
mod link;
mod remarks;
mod requests;
mod shares;
mod table;

use std::time::Duration;

use iscsi_tuner::{
    Activity, Autotuning, Diagnosis, Finding, Interface, Limiter, Limits, Measurement, Observation,
    Plan, Rtt, TcpInfo, TransferTerms, Tuning, plan,
};

/// Returns the default limits of Linux.
fn stock() -> Limits {
    let controls = ["reno", "cubic"].map(str::to_owned);
    let mut limits = Limits::default();
    limits.wmem_max = Some(212_992);
    limits.rmem_max = Some(212_992);
    limits.tcp_wmem = Some(Autotuning { min: 4096, default: 16_384, max: 4 << 20 });
    limits.tcp_rmem = Some(Autotuning { min: 4096, default: 131_072, max: 6 << 20 });
    limits.available_congestion_controls = controls.to_vec();
    limits.allowed_congestion_controls = controls.to_vec();
    limits.congestion_control = Some("cubic".to_owned());
    limits
}

/// Returns samples of what a connection waited for, as `count` sets them.
fn waiting(count: impl FnOnce(&mut Activity)) -> Activity {
    let mut activity = Activity::default();
    count(&mut activity);
    activity
}

/// Returns the Linux target's terms, as changed by `change`.
fn terms(change: impl FnOnce(&mut TransferTerms)) -> TransferTerms {
    let mut terms = TransferTerms::default();
    change(&mut terms);
    terms
}

/// A connection that was observed for ten seconds, and all that is known about it.
struct Case {
    observation: Observation,
    measurement: Measurement,
    limits: Limits,
    tuning: Tuning,
    interface: Option<Interface>,
}

impl Case {
    /// Creates a case on a stable link of 100 ms, with the defaults of Linux on this host and those of the
    /// Linux target on the other.
    fn on(bandwidth: &str, activity: Activity) -> Self {
        let mut measurement = Measurement::default();
        measurement.rtt = Rtt::of([Duration::from_millis(100); 10]);
        measurement.mss = Some(1448);
        measurement.terms = Some(TransferTerms::default());
        let tuning = Tuning::default().with_bandwidth(Some(bandwidth.parse().unwrap()));
        let mut before = TcpInfo::default();
        before.smoothed_rtt = Some(Duration::from_millis(100));
        before.send_mss = Some(1448);
        before.congestion_window = Some(100);
        before.data_segments_sent = Some(5_000);
        before.segments_retransmitted = Some(70);
        before.busy = seconds(3);
        before.receive_window_limited = seconds(1);
        before.send_buffer_limited = seconds(1);
        let mut after = before;
        after.data_segments_sent = Some(25_000);
        after.busy = seconds(13);
        let elapsed = Duration::from_secs(10);
        let bytes = 25_000_000;
        let observation = Observation::new(elapsed, bytes, before, after, activity);
        Self { observation, measurement, limits: stock(), tuning, interface: None }
    }

    /// Creates a case as [`on`](Self::on) does, in which bytes waited for the socket all the time.
    fn socket(bandwidth: &str) -> Self {
        Self::on(
            bandwidth,
            waiting(|a| {
                a.socket = 200;
            }),
        )
    }

    /// Creates a case of ten seconds of reads at `mbit_per_s`, with a receive window of `window` bytes.
    fn reading(mbit_per_s: u64, window: u32) -> Self {
        let mut case = Self::on(
            "1gbit",
            waiting(|a| {
                a.answers = 50;
                a.target = 150;
            }),
        );
        case.observation.bytes = mbit_per_s * 1_250_000;
        case.after().bytes_received = Some(case.observation.bytes);
        case.after().receive_window = Some(window);
        case
    }

    fn after(&mut self) -> &mut TcpInfo {
        &mut self.observation.after
    }

    fn plan(&self) -> Plan {
        plan(&self.measurement, &self.limits, &self.tuning)
    }

    fn diagnose(&self) -> Diagnosis {
        let Self { observation, measurement, limits, interface, .. } = self;
        Diagnosis::new(observation, &self.plan(), measurement, limits, interface.as_ref())
    }

    /// Checks that `limiter` is the only finding, and returns it.
    #[track_caller]
    fn blames(&self, limiter: Limiter) -> Finding {
        let diagnosis = self.diagnose();
        assert_eq!(diagnosis.findings.len(), 1, "{diagnosis}");
        let finding = diagnosis.foremost().unwrap().clone();
        assert_eq!(finding.limiter, limiter, "{diagnosis}");
        assert!((finding.share - 1.0).abs() < 1e-9, "{diagnosis}");
        finding
    }
}

/// Checks that the evidence and the remedy contain these texts.
#[track_caller]
fn assert_says(finding: &Finding, evidence: &str, remedy: &str) {
    assert!(finding.evidence.contains(evidence), "{finding:?}");
    let found = finding.remedy.as_deref().unwrap_or_default();
    assert!(found.contains(remedy), "{finding:?}");
    assert_eq!(found.is_empty(), remedy.is_empty(), "{finding:?}");
}

fn share(diagnosis: &Diagnosis, limiter: Limiter) -> f64 {
    diagnosis
        .findings
        .iter()
        .filter(|found| found.limiter == limiter)
        .map(|found| found.share)
        .sum()
}

fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}
