//! What a peer's measurement brings.

use serde_json::Value;

/// What came of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// From the start of the program to its end.
    pub seconds: f64,
    /// Bytes that were moved, if others than were to be.
    pub bytes: Option<u64>,
    /// Of a measure by time, the rate at which bytes arrived in that time, 10^6 bits a second; of
    /// all others `None`: theirs is the bytes by the seconds.
    pub goodput_mbit_per_s: Option<f64>,
    /// The rate of each full second.
    pub samples_mbit_per_s: Vec<f64>,
    /// What the program itself reported.
    pub detail: Value,
}
