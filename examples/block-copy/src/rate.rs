//! Computes rates.

use std::time::Duration;

/// Returns a rate in Mbit/s (10^6 bits); 0 if the time is 0.
pub(crate) fn mbit_per_s(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate is a rounded number")]
    let bits = bytes as f64 * 8.0;
    if seconds > 0.0 { bits / seconds / 1e6 } else { 0.0 }
}
