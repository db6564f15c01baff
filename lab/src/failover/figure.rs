//! What came of a failover.

use serde::{Deserialize, Serialize};

use crate::result::Outcome;

/// What came of one failover.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverFigure {
    /// The longest time without progress, from the first to the last, seconds: of a copy without another byte
    /// on the unit, of random writes without an answer.
    pub stalled_seconds: f64,
    /// Seconds in which no path served: no initiator could have been faster.
    pub unserved_seconds: f64,
    /// From the first progress to the last, seconds.
    pub seconds: f64,
    /// How many errors the user saw.
    pub errors: u64,
    /// The error that the user received.
    pub error: Option<String>,
    /// Whether the unit held what was written, after all sessions had ended.
    pub equal: bool,
    /// The times without progress of half a second and more: when each began, after the first progress, and how
    /// long it was, seconds.
    pub gaps: Vec<(f64, f64)>,
    /// What was ordered, and when it was done, seconds after the first byte on the unit.
    pub orders: Vec<(f64, String)>,
}

/// How a failover of this figure ended.
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
