//! Tests of findings about the link: its rate, its queue, its losses.

use std::time::Duration;

use iscsi_tuner::Limiter;

use crate::{Case, assert_says, seconds, waiting};

#[test]
fn a_rate_that_is_reached_leaves_nothing_to_lift() {
    let mut case = Case::socket("100mbit");
    case.observation.bytes = 115_000_000;
    assert_says(&case.blames(Limiter::Link), "92 Mbit/s of 100 Mbit/s arrive", "");
}

#[test]
fn a_full_link_beyond_what_was_declared_shows_by_its_queue() {
    let mut case = Case::socket("100mbit");
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    assert_says(&case.blames(Limiter::Link), "20 Mbit/s arrive, 40 ms of data queue", "");
}

/// On a full link the kernel reports the windows as limits too, but larger windows would only make the queue
/// longer.
#[test]
fn no_window_is_blamed_where_the_link_is_full() {
    let mut case = Case::socket("100mbit");
    case.after().receive_window_limited = seconds(6);
    case.after().send_buffer_limited = seconds(6);
    case.observation.bytes = 115_000_000;
    case.blames(Limiter::Link);
    case.observation.bytes = 25_000_000;
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    case.blames(Limiter::Link);
}

/// On a full link the peer is not the limiter either, although data and commands wait for it until the link has
/// room.
#[test]
fn no_credit_is_blamed_where_the_link_is_full() {
    let activity = waiting(|a| {
        a.solicitation = 5;
        a.command_window = 5;
        a.answers = 5;
    });
    let mut case = Case::on("100mbit", activity);
    assert_eq!(case.diagnose().findings.len(), 3);
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    case.blames(Limiter::Link);
}

/// Delayed acknowledgements make round trips longer, but do not count as a queue.
#[test]
fn a_late_acknowledgement_is_no_queue() {
    let mut case = Case::on(
        "100mbit",
        waiting(|a| {
            a.solicitation = 50;
        }),
    );
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    case.observation.bytes = 500_000;
    case.blames(Limiter::Solicitation);
}

#[test]
fn an_assumed_rate_is_never_reached() {
    let mut case = Case::socket("100mbit");
    case.tuning = case.tuning.with_bandwidth(None);
    case.observation.bytes = 1_250_000_000;
    case.blames(Limiter::CongestionWindow);
}

#[test]
fn loss_asks_for_another_congestion_control_where_there_is_one() {
    let mut case = Case::socket("100mbit");
    case.after().segments_retransmitted = Some(270);
    let finding = case.blames(Limiter::Loss);
    assert_says(&finding, "1.000 % of the segments", "modprobe tcp_bbr");

    case.limits.available_congestion_controls.push("bbr".to_owned());
    case.limits.allowed_congestion_controls.push("bbr".to_owned());
    assert_says(&case.blames(Limiter::Loss), "1.000 %", "--congestion bbr");

    case.tuning = case.tuning.with_congestion_control(Some("bbr".to_owned()));
    let finding = case.blames(Limiter::Loss);
    assert_says(&finding, "1.000 %", "more connections share the loss");
    assert!(!finding.remedy.unwrap().contains("bbr"), "it is in use");
}

/// A full queue drops segments: the finding is the full link, not loss.
#[test]
fn loss_on_a_full_link_is_the_link() {
    let mut case = Case::socket("100mbit");
    case.after().segments_retransmitted = Some(270);
    case.observation.bytes = 115_000_000;
    case.blames(Limiter::Link);
}

#[test]
fn a_congestion_window_is_told_with_its_phase() {
    let mut case = Case::socket("100mbit");
    let finding = case.blames(Limiter::CongestionWindow);
    assert_says(&finding, "141.4 KiB may be in flight; it still doubles", "");
    case.after().slow_start_threshold = Some(50);
    let finding = case.blames(Limiter::CongestionWindow);
    assert_says(&finding, "141.4 KiB may be in flight; it has met a loss", "");
}
