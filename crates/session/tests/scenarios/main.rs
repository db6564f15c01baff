//! Scenarios: tests of a session against the test target, in virtual time. There is one file per topic; the
//! names and comments of the tests name the rules that they check.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    dead_code,
    reason = "a test may panic, and not every topic needs every part of the rig"
)]

mod abort;
mod added_login;
mod async_message;
mod cleared;
mod conformance;
mod connection_faults;
mod connection_loss;
mod connection_mix;
mod connections;
mod discovery;
mod drop_connection;
mod faults;
mod login_flow;
mod logout;
mod nop;
mod pair;
mod properties;
mod read;
mod reject;
mod reopening;
mod round_trips;
mod rules;
mod segmentation;
mod sequence_numbers;
mod sharing;
mod stat_sn;
mod task_management;
mod trace;
mod traffic;
mod waiting;
mod write;
mod zero_copy;

use std::time::Instant;

/// The point in time at which a scenario begins.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant comes from a clock; all later ones are reckoned"
)]
pub(crate) fn start() -> Instant {
    Instant::now()
}
