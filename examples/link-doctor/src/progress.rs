//! Prints progress messages on standard error.

use std::time::Duration;

use iscsi_initiator::Url;
use iscsi_tuner::Rate;

use crate::output::eprint_lines;
use iscsi_tuner::Size;

/// Reports that the session is being opened.
pub(crate) fn connecting(url: &Url) {
    eprint_lines(&format!("connecting to {url}\n"));
}

/// Reports that the pings begin.
pub(crate) fn pinging() {
    eprint_lines("measuring the round trip\n");
}

/// Reports that the pings with data begin.
pub(crate) fn trying_path() {
    eprint_lines("trying whether full packets arrive\n");
}

/// Reports that the reads begin.
pub(crate) fn reading_begins(seconds: u64) {
    eprint_lines(&format!("reading for {seconds} s; nothing is written\n"));
}

/// Reports one second of the reads: the time and the bytes so far, the rate in that second, and TCP's
/// round-trip time.
pub(crate) fn reading(time: Duration, bytes: u64, rate: Option<Rate>, rtt: Duration) {
    let seconds = time.as_secs_f64();
    let rate = shown(rate);
    let bytes = Size(bytes);
    let rtt = rtt.as_secs_f64() * 1e3;
    eprint_lines(&format!("{seconds:4.0} s  {rate}  {bytes} read  TCP round trip {rtt:.1} ms\n"));
}

/// Returns a rate as readable text.
pub(crate) fn shown(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "nothing".to_owned(), |rate| rate.to_string())
}
