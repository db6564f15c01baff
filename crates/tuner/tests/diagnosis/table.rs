//! Tests of the printed form of a diagnosis.

use std::time::Duration;

use crate::remarks::interface;
use crate::{Case, seconds, waiting};

/// A diagnosis of writes over a long link that every window limits.
#[test]
fn a_table_of_everything() {
    let activity = waiting(|a| {
        a.socket = 80;
        a.solicitation = 40;
        a.command_window = 30;
        a.answers = 20;
        a.target = 20;
        a.source = 10;
    });
    let mut case = Case::on("1gbit", activity);
    case.after().receive_window_limited = seconds(4);
    case.after().send_buffer_limited = seconds(5);
    case.after().peer_window = Some(3 << 20);
    case.after().slow_start_threshold = Some(50);
    case.measurement.path_mtu = Some(1500);
    case.interface = Some(interface(9000, Some(true)));
    insta::assert_snapshot!(case.diagnose().to_string());
}

#[test]
fn a_table_of_a_link_that_is_full() {
    let mut case = Case::socket("100mbit");
    case.observation.bytes = 118_000_000;
    case.observation.activity.answers = 20;
    case.after().smoothed_rtt = Some(Duration::from_millis(130));
    case.measurement.path_mtu = Some(1400);
    case.interface = Some(interface(1500, Some(false)));
    insta::assert_snapshot!(case.diagnose().to_string());
}
