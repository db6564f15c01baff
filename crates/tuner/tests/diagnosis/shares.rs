//! Tests of the share of the time of each limiter.

use iscsi_tuner::{Activity, Limiter, Limits, Measurement};

use crate::{Case, seconds, share, waiting};

/// The time in which bytes waited for the socket is divided by the times that the kernel reports.
#[test]
fn shares_follow_looks_and_the_kernels_account() {
    let activity = waiting(|a| {
        a.socket = 50;
        a.target = 30;
        a.source = 20;
    });
    let mut case = Case::on("100mbit", activity);
    // Each counter was at 1 second before. So the peer's window was the limit for 4, and the send buffer for
    // 2, of the 10 seconds in which data waited.
    case.after().receive_window_limited = seconds(5);
    case.after().send_buffer_limited = seconds(3);
    let diagnosis = case.diagnose();
    for (limiter, expected) in [
        (Limiter::Target, 0.3),
        (Limiter::PeerWindow, 0.2),
        (Limiter::CongestionWindow, 0.2),
        (Limiter::Source, 0.2),
        (Limiter::SendBuffer, 0.1),
    ] {
        assert!((share(&diagnosis, limiter) - expected).abs() < 1e-9, "{limiter}: {diagnosis}");
    }
    assert_eq!(diagnosis.foremost().unwrap().limiter, Limiter::Target);
    let total: f64 = diagnosis.findings.iter().map(|finding| finding.share).sum();
    assert!((total - 1.0).abs() < 1e-9);
}

/// The kernel reads each of its counters separately, so that their sum may exceed the time.
#[test]
fn a_kernel_that_counts_more_than_was_busy_is_survived() {
    let mut case = Case::socket("100mbit");
    case.after().receive_window_limited = seconds(31);
    case.after().send_buffer_limited = seconds(11);
    let diagnosis = case.diagnose();
    assert!((share(&diagnosis, Limiter::PeerWindow) - 0.75).abs() < 1e-9, "{diagnosis}");
    assert!((share(&diagnosis, Limiter::SendBuffer) - 0.25).abs() < 1e-9, "{diagnosis}");
}

#[test]
fn what_hardly_counts_is_left_out() {
    let activity = waiting(|a| {
        a.target = 99;
        a.source = 1;
    });
    let diagnosis = Case::on("100mbit", activity).diagnose();
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis}");
}

#[test]
fn nothing_observed_nothing_found() {
    let case = Case::on("100mbit", Activity::default());
    let diagnosis = case.diagnose();
    assert_eq!((diagnosis.foremost(), diagnosis.rows()), (None, vec![]));
    assert_eq!(diagnosis.to_string(), "");
}

/// If a kernel is old, or reports nothing, there is still a finding, without invented numbers.
#[test]
fn a_kernel_that_tells_nothing_gets_an_answer() {
    let mut case = Case::socket("100mbit");
    (case.observation.before, case.observation.after) = Default::default();
    case.measurement = Measurement::default();
    case.limits = Limits::default();
    let finding = case.blames(Limiter::CongestionWindow);
    assert!(!finding.evidence.contains("0 bytes"), "{finding:?}");
    assert!(!finding.evidence.contains("doubles"), "{finding:?}");
}

#[test]
fn activity_adds_up_and_never_overflows() {
    let count = |n| {
        waiting(|a| {
            a.socket = n;
            a.solicitation = n + 1;
            a.command_window = n + 2;
            a.answers = n + 3;
            a.target = n + 4;
            a.source = n + 5;
        })
    };
    assert_eq!(count(10).total(), 75);
    assert_eq!(count(10).since(&count(7)).total(), 18);
    assert_eq!(count(10).since(&waiting(|a| a.target = 4)).target, 10);
    assert_eq!(count(7).since(&count(10)).total(), 0);
    assert_eq!(count(u32::MAX - 5).total(), u32::MAX);
}
