//! What people see on standard error while they wait.

use std::time::Duration;

use iscsi_initiator::Url;
use iscsi_tuner::Rate;

use crate::output::say;
use iscsi_tuner::Size;

/// The session comes about.
pub(crate) fn connecting(url: &Url) {
    say(&format!("connecting to {url}\n"));
}

/// The pings begin.
pub(crate) fn pinging() {
    say("measuring the round trip\n");
}

/// The pings with data begin.
pub(crate) fn trying_path() {
    say("trying whether full packets arrive\n");
}

/// The reads begin.
pub(crate) fn reading_begins(seconds: u64) {
    say(&format!("reading for {seconds} s; nothing is written\n"));
}

/// A second of the reads is over: after so much time, with so many bytes, and the kernel's round-trip time.
pub(crate) fn reading(time: Duration, bytes: u64, rate: Option<Rate>, rtt: Duration) {
    let seconds = time.as_secs_f64();
    let rate = shown(rate);
    let bytes = Size(bytes);
    let rtt = rtt.as_secs_f64() * 1e3;
    say(&format!("{seconds:4.0} s  {rate}  {bytes} read  TCP round trip {rtt:.1} ms\n"));
}

/// A rate for people.
pub(crate) fn shown(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "nothing".to_owned(), |rate| rate.to_string())
}
