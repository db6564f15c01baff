//! The result of a peer's measurement.

use serde_json::Value;

/// The result of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Seconds from the start of the program to its end.
    pub seconds: f64,
    /// Number of bytes that were moved, if it differs from the requested number.
    pub bytes: Option<u64>,
    /// For a measurement of fixed duration, the rate at which bytes arrived, 10^6 bits per second. `None` for
    /// all other measurements: their rate follows from bytes and seconds.
    pub goodput_mbit_per_s: Option<f64>,
    /// Rate of each full second, 10^6 bits per second.
    pub samples_mbit_per_s: Vec<f64>,
    /// The program's own report.
    pub detail: Value,
}
