//! Ranges in a file, as tools for snapshots tell what has changed.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use iscsi_copy::RangeSet;
use serde_json::Value;
use thiserror::Error as ThisError;
use tokio::task::spawn_blocking;

use crate::ends::Ends;
use crate::error::Error;

/// Why a file names no ranges to copy.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
pub(crate) enum RangesError {
    /// A line says nothing that is known.
    #[error("line {0}: write the first byte and the length, as 4096 512 or 0x1000 0x200")]
    Line(usize),
    /// It begins as JSON and is none.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// An entry has no numbers of these names.
    #[error("{0}: it has no \"start\", or \"offset\", and \"length\" in bytes")]
    Entry(Place),
    /// A range ends behind the source.
    #[error("{place}: it ends at byte {end}, and the source has {has}")]
    Beyond {
        /// Where it stands.
        place: Place,
        /// The byte behind it.
        end: u64,
        /// Bytes of the source.
        has: u64,
    },
    /// A range overlaps one before it.
    #[error("{0}: it overlaps a range before it")]
    Overlap(Place),
}

/// Where in a file a range stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// In this line, from 1 on.
    Line(usize),
    /// In this entry of an array, from 1 on.
    Entry(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Entry(number) => write!(f, "entry {number}"),
        }
    }
}

/// Reads the ranges in a file, if there is one. `None` copies all.
pub(crate) async fn load(path: Option<&Path>, ends: &Ends) -> Result<Option<RangeSet>, Error> {
    let Some(path) = path else { return Ok(None) };
    let has = ends.to_source().length().filter(|_| !ends.source.is_stream());
    let has = has.ok_or(Error::Usage(
        "a stream has no places; leave --ranges out, or copy from a file or a unit",
    ))?;
    let file = path.to_owned();
    let reading = spawn_blocking(move || read(&String::from_utf8_lossy(&fs::read(file)?), has));
    let failed = |cause| Error::Ranges { name: path.to_string_lossy().into(), cause };
    reading.await.map_err(io::Error::from).flatten().map(Some).map_err(failed)
}

/// Reads ranges of a source of so many bytes.
///
/// # Errors
/// [`InvalidData`](ErrorKind::InvalidData) with what cannot be so.
pub(crate) fn read(text: &str, has: u64) -> io::Result<RangeSet> {
    parse(text, has).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Reads ranges of a source of so many bytes: lines of `START LENGTH` in bytes, decimal or with `0x`, where
/// `#` begins a comment; or a JSON array of objects with `start`, or `offset`, and `length`, of which
/// every entry counts, whatever else it says.
///
/// # Errors
/// The first thing that cannot be so, and where it stands.
fn parse(text: &str, has: u64) -> Result<RangeSet, RangesError> {
    let told = if text.trim_start().starts_with('[') { array(text)? } else { lines(text)? };
    let mut ranges = RangeSet::new();
    for (place, start, len) in told {
        let end = start.saturating_add(len);
        if end > has {
            return Err(RangesError::Beyond { place, end, has });
        }
        let range: Range<u64> = start..end;
        if !ranges.overlap(&range).is_empty() {
            return Err(RangesError::Overlap(place));
        }
        ranges.insert(range);
    }
    Ok(ranges)
}

/// Where a range stands, its first byte, and its length.
type Told = (Place, u64, u64);

fn lines(text: &str) -> Result<Vec<Told>, RangesError> {
    let mut told = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = words.split_ascii_whitespace().collect();
        match words[..] {
            [] => {}
            [start, len] => {
                let both = number(start).zip(number(len));
                let (start, len) = both.ok_or(RangesError::Line(at + 1))?;
                told.push((Place::Line(at + 1), start, len));
            }
            _ => return Err(RangesError::Line(at + 1)),
        }
    }
    Ok(told)
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|digit: char| digit.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        None if word.starts_with(|digit: char| digit.is_ascii_digit()) => word.parse().ok(),
        Some(_) | None => None,
    }
}

fn array(text: &str) -> Result<Vec<Told>, RangesError> {
    let entries: Vec<Value> =
        serde_json::from_str(text).map_err(|error| RangesError::Json(error.to_string()))?;
    let told = entries.iter().enumerate().map(|(at, entry)| {
        let place = Place::Entry(at + 1);
        let start = entry.get("start").or_else(|| entry.get("offset")).and_then(Value::as_u64);
        let len = entry.get("length").and_then(Value::as_u64);
        let (start, len) = start.zip(len).ok_or(RangesError::Entry(place))?;
        Ok((place, start, len))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(ranges: [Range<u64>; N]) -> Result<RangeSet, RangesError> {
        Ok(ranges.into_iter().collect())
    }

    #[test]
    fn lines_of_numbers() {
        let text =
            "# changed since Monday\n0 512\n\n  0x1000\t0x200 # the second\n0 0\r\n512 512\n";
        assert_eq!(parse(text, 1 << 20), set([0..1024, 4096..4608]));
        assert_eq!(parse("", 0), set([]));
        let line = |text: &str| parse(text, 1 << 20);
        for nonsense in ["0", "0 1 2", "0 -1", "0 +1", "a b", "0x 1", "0x+1 1", "0 1K", "1.5 2"] {
            assert_eq!(
                line(&format!("0 1\n{nonsense}\n")),
                Err(RangesError::Line(2)),
                "{nonsense}"
            );
        }
        let (end, has) = ((1 << 20) + 1, 1 << 20);
        let beyond = Err(RangesError::Beyond { place: Place::Line(2), end, has });
        assert_eq!(line("0 1\n1048576 1\n"), beyond);
        let huge = "0xffffffffffffffff 0xffffffffffffffff";
        assert!(matches!(line(huge), Err(RangesError::Beyond { .. })));
        assert_eq!(line("0 10\n20 10\n9 1"), Err(RangesError::Overlap(Place::Line(3))));
    }

    #[test]
    fn an_array_of_objects() {
        // As `qemu-img map --output=json` and `nbdinfo --map --json` write them.
        let qemu = r#"[{ "start": 0, "length": 512, "depth": 0, "zero": false, "data": true},
                       { "start": 4096, "length": 512, "data": false}]"#;
        assert_eq!(parse(qemu, 8192), set([0..512, 4096..4608]));
        let nbd = r#"[{"offset": 512, "length": 512, "type": 1, "description": "dirty"},
                      {"offset": 2048, "length": 1, "type": 0, "description": "clean"}]"#;
        assert_eq!(parse(nbd, 8192), set([512..1024, 2048..2049]));
        assert_eq!(parse("[]", 0), set([]));
        let wrong = r#"[{"start": 0, "length": 1}, {"start": "0", "length": 1}]"#;
        assert_eq!(parse(wrong, 10), Err(RangesError::Entry(Place::Entry(2))));
        assert!(matches!(parse("[1, ", 10), Err(RangesError::Json(_))));
        let twice = r#"[{"start": 0, "length": 2}, {"start": 1, "length": 1}]"#;
        assert_eq!(parse(twice, 10), Err(RangesError::Overlap(Place::Entry(2))));
    }
}
