//! Tests of findings about the send buffer, the peer's window and the receive window: which sysctls lift
//! their limits.

use std::time::Duration;

use iscsi_tuner::Limiter;

use crate::{Case, assert_says, seconds};

/// 1 Gbit/s at 100 ms hold 11.25 MiB of payload, which the kernel counts twice.
#[test]
fn a_send_buffer_gets_the_sysctl_with_its_numbers() {
    let mut case = Case::socket("1gbit");
    case.after().send_buffer_limited = seconds(11);
    let finding = case.blames(Limiter::SendBuffer);
    let sysctl = "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 23592960\"";
    assert_says(&finding, "kernel's tuning has reached its end", sysctl);
    case.limits.tcp_wmem = None;
    assert_says(&case.blames(Limiter::SendBuffer), "reached its end", sysctl);
}

/// A buffer that the user has set too small is reported with its size.
#[test]
fn a_send_buffer_that_was_asked_for_is_told() {
    let mut case = Case::socket("1gbit");
    case.tuning = case.tuning.with_send_buffer(Some(128 << 10));
    case.after().send_buffer_limited = seconds(11);
    let finding = case.blames(Limiter::SendBuffer);
    assert_says(&finding, "128 KiB are not enough", "--tune auto");
}

/// The kernel reports a buffer of fixed size as the limit only while all data in the buffer has been sent, so
/// the reported time is too short. A congestion window larger than the buffer shows that the buffer is the
/// limit.
#[test]
fn a_window_beyond_a_fixed_buffer_is_the_buffers_fault() {
    let mut case = Case::socket("100mbit");
    case.tuning = case.tuning.with_send_buffer(Some(128 << 10));
    case.after().send_buffer_limited = Some(Duration::from_secs(2));
    assert_says(&case.blames(Limiter::SendBuffer), "128 KiB are not enough", "tcp_wmem");
}

/// The advice never lowers a sysctl that permits more than the link needs.
#[test]
fn the_sysctl_never_shrinks() {
    let mut case = Case::socket("100mbit");
    case.after().send_buffer_limited = seconds(11);
    let finding = case.blames(Limiter::SendBuffer);
    assert_says(&finding, "reached its end", "tcp_wmem=\"4096 16384 8388608\"");
    case.tuning = case.tuning.with_send_buffer(Some(128 << 10));
    let finding = case.blames(Limiter::SendBuffer);
    assert_says(&finding, "128 KiB", "tcp_wmem=\"4096 16384 4194304\"");
}

#[test]
fn the_peers_window_is_lifted_at_the_peer() {
    let mut case = Case::socket("1gbit");
    case.after().receive_window_limited = seconds(11);
    case.after().peer_window = Some(3 << 20);
    let sysctl = "on the target: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 23592960\"";
    assert_says(&case.blames(Limiter::PeerWindow), "the peer takes 3 MiB at a time", sysctl);
    // This window is already larger than the link needs, but it was the limit. So the advice is twice that
    // window.
    case.after().peer_window = Some(32 << 20);
    let finding = case.blames(Limiter::PeerWindow);
    assert_says(&finding, "32 MiB", "tcp_rmem=\"4096 131072 134217728\"");
}

/// Kernels before 5.4 do not report the peer's window, so the finding must not state one.
#[test]
fn a_peers_window_that_is_not_told_is_not_made_up() {
    let mut case = Case::socket("1gbit");
    case.after().receive_window_limited = seconds(11);
    let finding = case.blames(Limiter::PeerWindow);
    assert!(!finding.evidence.contains("0 bytes"), "{finding:?}");
    assert_says(&finding, "", "tcp_rmem=\"4096 131072 23592960\"");
}

/// A receive window of 3 MiB allows 252 Mbit/s at 100 ms. The reads reach 230 Mbit/s, so the window is the
/// limit.
#[test]
fn reads_that_fill_the_receive_window_are_told_its_sysctl() {
    let finding = Case::reading(230, 3 << 20).blames(Limiter::ReceiveWindow);
    assert_says(&finding, "3 MiB at a time", "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 ");
}

/// Kernels before 6.2 do not report the receive window; half of the autotuning limit is used instead.
#[test]
fn a_receive_window_that_is_not_told_follows_from_its_limit() {
    let mut case = Case::reading(230, 0);
    case.after().receive_window = None;
    let finding = case.blames(Limiter::ReceiveWindow);
    assert_says(&finding, "3 MiB at a time", "net.ipv4.tcp_rmem=\"4096 131072 ");
}
