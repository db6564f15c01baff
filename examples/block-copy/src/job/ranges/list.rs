//! Parses lists of ranges as text, in the formats of snapshot tools.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
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
    /// A bitmap in base64 has another length than the source needs.
    #[error("it is a bitmap of {blocks} blocks of 64 KiB, and the source has {needed}")]
    Blocks {
        /// Number of bits.
        blocks: u64,
        /// Number of blocks of the source.
        needed: u64,
    },
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

/// Parses the ranges of a source of `has` bytes. The text has one of these forms:
///
/// - lines `START LENGTH`, in bytes, decimal or with `0x`, and lines with a [`DirtyBitmap`]; `#` begins a comment;
/// - a JSON array of objects with `start` (or `offset`) and `length`, as QEMU, libnbd and oVirt write them. An object that says
///   `"dirty": false` is none, other members are ignored;
/// - JSON objects, one after the other, with lists `blockMetadata`, as gRPC clients print the answers of CSI's `GetMetadataDelta`;
/// - a bitmap of blocks of 64 KiB in base64, the first block in the highest bit, as XAPI's `list_changed_blocks` returns it.
///
/// # Errors
/// The first error, and its place.
pub(crate) fn parse(text: &str, has: u64) -> Result<RangeList, RangesError> {
    let (pieces, bitmaps) = if text.trim_start().starts_with(['[', '{']) {
        (json(text)?, Vec::new())
    } else if let Some(bytes) = base64(text.trim(), has) {
        (blocks(&bytes, has)?, Vec::new())
    } else {
        lines(text)?
    };
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

/// Returns the ranges of JSON values that follow each other: objects, and arrays of objects.
fn json(text: &str) -> Result<Vec<Piece>, RangesError> {
    let mut entries = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter() {
        let value = value.map_err(|error| RangesError::Json(error.to_string()))?;
        if let Value::Array(list) = value {
            entries.extend(list);
        } else {
            entries.push(value);
        }
    }
    let (mut pieces, mut at) = (Vec::new(), 0);
    for entry in &entries {
        let listed = either(entry, ["blockMetadata", "block_metadata"]);
        // An answer of CSI without changed blocks may lack the list.
        let is_answer = either(entry, ["blockMetadataType", "block_metadata_type"]).is_some();
        let listed = match listed {
            Some(Value::Array(list)) => list.as_slice(),
            Some(Value::Null) | None if is_answer => &[],
            Some(_) => return Err(RangesError::Entry(Place::Entry(at + 1))),
            None => std::slice::from_ref(entry),
        };
        for entry in listed {
            at += 1;
            let place = Place::Entry(at);
            let (start, len) = range(entry).ok_or(RangesError::Entry(place))?;
            if entry.get("dirty") != Some(&Value::Bool(false)) {
                pieces.push((place, start, len));
            }
        }
    }
    Ok(pieces)
}

fn either<'a>(entry: &'a Value, names: [&str; 2]) -> Option<&'a Value> {
    names.iter().find_map(|name| entry.get(name))
}

/// Returns the first byte and the length of an entry.
fn range(entry: &Value) -> Option<(u64, u64)> {
    // Protocol Buffers write 64-bit numbers as texts, and leave out a 0.
    let long = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    if let Some(len) = either(entry, ["sizeBytes", "size_bytes"]) {
        let start = either(entry, ["byteOffset", "byte_offset"]).map_or(Some(0), long);
        return start.zip(long(len));
    }
    let start = either(entry, ["start", "offset"])?.as_u64();
    start.zip(entry.get("length")?.as_u64())
}

/// Decodes a bitmap for a source of `has` bytes; `None` for any other text. A number alone is a line that was cut off, and a
/// short word is a bitmap only if it has the length of one.
fn base64(text: &str, has: u64) -> Option<Vec<u8>> {
    const SHORT: usize = 16;
    let bytes = BASE64_STANDARD.decode(text).ok().filter(|_| number(text).is_none())?;
    (text.len() > SHORT || fits(&bytes, has)).then_some(bytes)
}

/// Length of a block of XAPI's bitmaps.
const BLOCK: u64 = 64 << 10;

/// Returns whether a bitmap has a bit for each block of a source of `has` bytes, and no further byte.
fn fits(bytes: &[u8], has: u64) -> bool {
    bytes.len() as u64 == has.div_ceil(BLOCK).div_ceil(8)
}

/// Returns the blocks that a bitmap marks. The last block may end beyond the source.
fn blocks(bytes: &[u8], has: u64) -> Result<Vec<Piece>, RangesError> {
    let needed = has.div_ceil(BLOCK);
    if !fits(bytes, has) {
        return Err(RangesError::Blocks { blocks: bytes.len() as u64 * 8, needed });
    }
    let marked = (0..needed).filter(|block| {
        let byte = usize::try_from(block / 8).ok().and_then(|at| bytes.get(at));
        byte.is_some_and(|byte| byte & (0x80 >> (block % 8)) != 0)
    });
    let pieces = marked.map(|block| {
        let start = block * BLOCK;
        (Place::Entry(1), start, BLOCK.min(has - start))
    });
    Ok(pieces.collect())
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
        assert_eq!(parse("[] {}", 10), Err(RangesError::Entry(Place::Entry(1))));
        let twice = r#"[{"start": 0, "length": 2}, {"start": 1, "length": 1}]"#;
        assert_eq!(parse(twice, 10), one(0..2));
    }

    /// What oVirt answers to `images/ID/extents?context=dirty`.
    #[test]
    fn what_is_not_dirty_has_not_changed() {
        let ovirt = r#"[{"start": 0, "length": 65536, "dirty": false, "zero": false},
                        {"start": 65536, "length": 65536, "dirty": true, "zero": true},
                        {"start": 131072, "length": 65536, "dirty": false, "zero": true}]"#;
        assert_eq!(parse(ovirt, 1 << 20), one(65536..131_072));
    }

    /// The JSON objects that a gRPC client prints, one for each message that CSI's `GetMetadataDelta` streams.
    #[test]
    fn answers_of_csi_follow_each_other() {
        let csi = r#"{"blockMetadataType": "FIXED_LENGTH", "volumeCapacityBytes": "1048576",
                      "blockMetadata": [{"sizeBytes": "4096"}, {"byteOffset": "8192", "sizeBytes": "4096"}]}
                     {"blockMetadataType": "FIXED_LENGTH", "volumeCapacityBytes": "1048576"}
                     {"block_metadata_type": 1, "block_metadata": [{"byte_offset": 16384, "size_bytes": 512}]}"#;
        assert_eq!(parse(csi, 1 << 20), set([0..4096, 8192..12_288, 16_384..16_896]));
        let wrong = r#"{"blockMetadata": [{"sizeBytes": "4096"}, {"byteOffset": "8192"}]}"#;
        assert_eq!(parse(wrong, 1 << 20), Err(RangesError::Entry(Place::Entry(2))));
        let wrong =
            r#"{"blockMetadataType": 1, "blockMetadata": {"byteOffset": "0", "sizeBytes": "1"}}"#;
        assert_eq!(parse(wrong, 1 << 20), Err(RangesError::Entry(Place::Entry(1))));
        let wrong = r#"{"blockMetadata": [{"byteOffset": "-1", "sizeBytes": "1"}]}"#;
        assert_eq!(parse(wrong, 1 << 20), Err(RangesError::Entry(Place::Entry(1))));
    }

    #[test]
    fn a_bitmap_has_a_bit_for_each_64_kib() {
        const MIB: u64 = 1 << 20;
        // Blocks 0 and 9 of 16.
        assert_eq!(parse("gEA=\n", MIB), set([0..65_536, 9 * 65_536..10 * 65_536]));
        // The last block is shorter than the others, and what lies behind it is no block.
        assert_eq!(parse("AP8=", 8 * 65_536 + 5), one(8 * 65_536..8 * 65_536 + 5));
        let long = "gEAAAAAAAAAAAAAAAAAA";
        let blocks = Err(RangesError::Blocks { blocks: 120, needed: 16 });
        assert_eq!(parse(long, MIB), blocks);
        assert_eq!(parse(long, 120 * 65_536), set([0..65_536, 9 * 65_536..10 * 65_536]));
        for (text, has) in [("gEA=", MIB + 1), ("gEA=", MIB / 2), ("gEAA", MIB), ("some", MIB)] {
            assert_eq!(parse(text, has), Err(RangesError::Line(1)), "{text} {has}");
        }
        assert_eq!(
            parse("4096", 20 * 65_536),
            Err(RangesError::Line(1)),
            "a line that was cut off"
        );
        assert_eq!(parse("gEA", MIB), Err(RangesError::Line(1)));
        assert_eq!(parse("0x1234ab", 41 * 65_536), Err(RangesError::Line(1)));
    }
}
