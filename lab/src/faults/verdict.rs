//! Judges whether a copy through a fault has ended as expected.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::result::Outcome;

/// The result of a copy, as block-copy reported it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Copied {
    /// Exit status; `None` if a signal ended the copy.
    pub status: Option<i32>,
    /// The error, if there was one.
    pub error: Option<String>,
    /// Number of sessions that were lost and reconnected, if the program reported it.
    pub reconnects: Option<u64>,
    /// Percentage of the copy at which the fault was made.
    pub fault_at_percent: u64,
    /// Longest time without progress, seconds, precise to a second.
    pub stalled_seconds: f64,
    /// Time from the start to the end, seconds.
    pub seconds: f64,
}

/// State of the files after the copy.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Held {
    /// Whether the destination equals the source.
    pub equal: bool,
    /// Whether the unit that replaced the first one is unchanged; `None` if there was no such unit.
    pub other_untouched: Option<bool>,
}

/// The detail of a copy through a fault.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FaultFigure {
    /// The result of the copy.
    #[serde(flatten)]
    pub copied: Copied,
    /// State of the files.
    #[serde(flatten)]
    pub held: Held,
    /// The regular expression that the error had to match; `None` if the bytes had to be equal.
    pub expected: Option<String>,
}

/// Returns the outcome of a copy. If an error is expected, the error decides, else the bytes do.
pub fn judge(copied: &Copied, held: Held, error: Option<&str>) -> Outcome {
    let ended_well = copied.status == Some(0);
    let told = copied.error.as_deref().unwrap_or("no error was reported");
    if ended_well && !held.equal {
        return Outcome::Failed("it ended well, but the bytes differ".to_owned());
    }
    if held.other_untouched == Some(false) {
        return Outcome::Failed("the unit that took the other's place was written to".to_owned());
    }
    match (error, ended_well) {
        (None, true) => Outcome::Complete,
        (None, false) => Outcome::Failed(format!("it should have ended well: {told}")),
        (Some(error), true) => {
            Outcome::Failed(format!("it ended well, instead of with an error like `{error}`"))
        }
        (Some(error), false) => {
            let is_right = Regex::new(error).is_ok_and(|error| error.is_match(told));
            // From 124 on it was a time limit or a signal.
            if is_right && copied.status.is_some_and(|status| (1..124).contains(&status)) {
                Outcome::Complete
            } else {
                Outcome::Failed(format!("its error should be like `{error}`: {told}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EQUAL: Held = Held { equal: true, other_untouched: None };

    fn ended(status: i32, error: Option<&str>) -> Copied {
        let error = error.map(str::to_owned);
        Copied { status: Some(status), error, ..Copied::default() }
    }

    fn is_good(copied: &Copied, held: Held, error: Option<&str>) -> bool {
        judge(copied, held, error) == Outcome::Complete
    }

    #[test]
    fn a_good_end_wants_equal_bytes() {
        let differ = Held { equal: false, ..EQUAL };
        assert!(is_good(&ended(0, None), EQUAL, None));
        assert!(!is_good(&ended(0, None), differ, None));
        assert!(!is_good(&ended(1, Some("no")), EQUAL, None));
        assert_eq!(
            judge(&ended(0, None), differ, Some("full")),
            Outcome::Failed("it ended well, but the bytes differ".to_owned())
        );
    }

    #[test]
    fn an_error_is_known_by_its_words_and_status() {
        let full = Some("no space|full");
        assert!(is_good(&ended(1, Some("the unit is full")), EQUAL, full));
        assert!(is_good(&ended(69, Some("the unit is full")), EQUAL, full));
        assert!(!is_good(&ended(1, Some("the unit is gone")), EQUAL, full));
        assert!(!is_good(&ended(130, Some("the unit is full")), EQUAL, full));
        assert!(!is_good(&ended(0, None), EQUAL, full));
        assert!(!is_good(&ended(1, None), EQUAL, full));
    }

    #[test]
    fn another_unit_must_stay_as_it_was() {
        let written = Held { other_untouched: Some(false), ..EQUAL };
        let kept = Held { other_untouched: Some(true), ..EQUAL };
        assert!(is_good(&ended(1, Some("another unit")), kept, Some("another")));
        assert!(!is_good(&ended(1, Some("another unit")), written, Some("another")));
    }
}
