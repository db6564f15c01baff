//! Parses times on the command line.

use std::time::Duration;

/// The longest time that is accepted, in seconds: a day.
const MAX_TIME: f64 = 86_400.0;
/// Suffixes of a number, and the length of each unit in seconds. The first suffix that matches is used.
const UNITS: [(&str, f64); 5] = [("ms", 1e-3), ("min", 60.0), ("h", 3600.0), ("s", 1.0), ("", 1.0)];

/// Parses a time up to a day: a number of seconds, or a number with the suffix `ms`, `s`, `min` or `h`.
///
/// # Errors
/// A sentence with the expected form of a time.
pub fn parse(text: &str) -> Result<Duration, String> {
    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let seconds = unit.and_then(|(number, unit)| Some(number.parse::<f64>().ok()? * unit));
    let seconds = seconds.filter(|seconds| (0.0..=MAX_TIME).contains(seconds));
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "write a time up to a day, as 500ms, 2s, 5min or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_a_unit_follows() {
        for (text, millis) in [
            ("2s", 2000),
            ("500ms", 500),
            ("1.5", 1500),
            ("0", 0),
            ("5min", 300_000),
            ("24h", 86_400_000),
            ("86400s", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1m", "NaN", "inf", "86401s", "2 s", "25h", "min"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
