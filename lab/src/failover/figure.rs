//! The result of a failover.

use serde::{Deserialize, Serialize};

use crate::result::Outcome;

/// The result of one failover.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverFigure {
    /// Longest time without progress, between the first and the last progress, seconds. For a copy, progress
    /// means that the unit's file has grown. For random writes, it means that a write was acknowledged.
    pub stalled_seconds: f64,
    /// Seconds in which no path served. No initiator can have a shorter time without progress.
    pub unserved_seconds: f64,
    /// Seconds from the first progress to the last.
    pub seconds: f64,
    /// Number of errors that the user saw.
    pub errors: u64,
    /// The error that the user received.
    pub error: Option<String>,
    /// Whether the unit held the written data after all sessions had ended.
    pub equal: bool,
    /// Times of at least 0.5 s without progress: when each began, counted from the first progress, and its
    /// length, seconds.
    pub gaps: Vec<(f64, f64)>,
    /// The scripted changes, each with the time at which it was made, seconds after the first byte on the unit.
    pub orders: Vec<(f64, String)>,
}

/// Returns the outcome of a failover, by its figure.
pub fn judge(figure: &FailoverFigure) -> Outcome {
    match (&figure.error, figure.equal) {
        (None, true) => Outcome::Complete,
        (None, false) => Outcome::Failed("it ended well, but the bytes differ".to_owned()),
        (Some(error), _) => Outcome::Failed(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_other_bytes_are_no_good_end() {
        let figure = |error: Option<&str>, equal| FailoverFigure {
            error: error.map(str::to_owned),
            equal,
            ..FailoverFigure::default()
        };
        assert_eq!(judge(&figure(None, true)), Outcome::Complete);
        assert!(matches!(judge(&figure(None, false)), Outcome::Failed(_)));
        assert_eq!(judge(&figure(Some("EIO"), true)), Outcome::Failed("EIO".to_owned()));
    }
}
