//! Parses lists of ranges as text, in the formats of snapshot tools.

use std::fmt;

use iscsi_copy::{DirtyBitmap, NbdError, NbdUri, RangeSet};
use serde_json::Value;
use thiserror::Error as ThisError;

use crate::error::sentence::of_export;
use crate::location::nbd_tls;

/// Reasons why a list of ranges cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
pub(crate) enum RangesError {
    /// A line is not the first byte and the length of a range.
    #[error("line {0}: write the first byte and the length, as 4096 512 or 0x1000 0x200")]
    Line(usize),
    /// A line begins like the URI of a dirty bitmap, and is not a valid one.
    #[error("{0}: {1}")]
    Bitmap(Place, String),
    /// The text begins like JSON, and is not valid JSON.
    #[error("it is not JSON: {0}")]
    Json(String),
    /// An entry lacks a number `start` (or `offset`), or a number `length`.
    #[error("{0}: it has no \"start\", or \"offset\", and \"length\" in bytes")]
    Entry(Place),
    /// A range ends beyond the end of the source.
    #[error("{place}: it ends at byte {end}, and the source has {has}")]
    Beyond {
        /// The place of the range in the file.
        place: Place,
        /// The end of the range, exclusive.
        end: u64,
        /// Length of the source in bytes.
        has: u64,
    },
}

/// The place of a range in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// This line, counted from 1.
    Line(usize),
    /// This entry of an array, counted from 1.
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

/// A parsed list.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct RangeList {
    /// The ranges that the list contains.
    pub(crate) ranges: RangeSet,
    /// The dirty bitmaps that the list names. They mark further ranges.
    pub(crate) bitmaps: Vec<DirtyBitmap>,
}

/// Parses the ranges of a source of `has` bytes. The text consists of lines `START LENGTH`, in bytes, decimal
/// or with `0x`, and of lines with a [`DirtyBitmap`]; `#` begins a comment. Or the text is a JSON array of
/// objects with `start` (or `offset`) and `length`. Each object is a range, whatever other members it has.
///
/// # Errors
/// The first error, and its place.
pub(crate) fn parse(text: &str, has: u64) -> Result<RangeList, RangesError> {
    let is_json = text.trim_start().starts_with('[');
    let (pieces, bitmaps) = if is_json { (array(text)?, Vec::new()) } else { lines(text)? };
    let mut ranges = RangeSet::new();
    for (place, start, len) in pieces {
        let end = start.saturating_add(len);
        if end > has {
            return Err(RangesError::Beyond { place, end, has });
        }
        // Ranges may overlap. A tool that records each write lists some bytes twice, and forgets the changes
        // when it has printed them: if the list were refused, the changes would be lost.
        ranges.insert(start..end);
    }
    Ok(RangeList { ranges, bitmaps })
}

/// The place of a range, its first byte, and its length.
type Piece = (Place, u64, u64);

fn lines(text: &str) -> Result<(Vec<Piece>, Vec<DirtyBitmap>), RangesError> {
    let (mut told, mut bitmaps) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        if NbdUri::is_meant_by(line.trim_start()) {
            let bitmap = bitmap(line)
                .map_err(|error| RangesError::Bitmap(Place::Line(at + 1), of_export(&error)))?;
            bitmaps.push(bitmap);
            continue;
        }
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
    Ok((told, bitmaps))
}

fn bitmap(line: &str) -> Result<DirtyBitmap, NbdError> {
    let bitmap: DirtyBitmap = line.parse()?;
    let uri = nbd_tls::provide(bitmap.uri().clone())?;
    Ok(bitmap.with_uri(uri))
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

fn array(text: &str) -> Result<Vec<Piece>, RangesError> {
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
    use std::ops::Range;

    use super::*;

    fn set<const N: usize>(ranges: [Range<u64>; N]) -> Result<RangeList, RangesError> {
        Ok(RangeList { ranges: ranges.into_iter().collect(), bitmaps: Vec::new() })
    }

    fn one(range: Range<u64>) -> Result<RangeList, RangesError> {
        Ok(RangeList { ranges: range.into(), bitmaps: Vec::new() })
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
        assert_eq!(line("0 10\n20 10\n9 12\n5 1\n0 10"), one(0..30), "some of it is told again");
    }

    #[test]
    fn a_line_names_a_dirty_bitmap() {
        let bitmap = "nbd+unix:///disk?socket=/run/#1 qemu:dirty-bitmap:b0";
        let told = RangeList {
            ranges: (0..512).into(),
            bitmaps: vec![bitmap.parse().unwrap(), "nbd://h qemu:dirty-bitmap:1".parse().unwrap()],
        };
        let text = format!("  {bitmap}\r\n0 512\nnbd://h\tqemu:dirty-bitmap:1");
        assert_eq!(parse(&text, 512), Ok(told));
        for nonsense in
            ["nbd://h", "nbd://h b0", "nbds://h?tls_x=1 qemu:dirty-bitmap:b", "nbd://h 1 2"]
        {
            let wrong = parse(&format!("0 1\n{nonsense}\n"), 512);
            assert!(matches!(wrong, Err(RangesError::Bitmap(Place::Line(2), _))), "{nonsense}");
        }
    }

    #[test]
    fn an_array_of_objects() {
        // The form that `qemu-img map --output=json` and `nbdinfo --map --json` write.
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
        assert_eq!(parse(twice, 10), one(0..2));
    }
}
