//! An independent reader of digest files, written from the description of the format.

use std::collections::BTreeMap;
use std::ops::Range;

/// A statement about a block: zeros (`None`), or its BLAKE3 hash.
pub(crate) type Digest = Option<[u8; 32]>;

/// Statements by the first byte of their range, each with the end of its range.
pub(crate) type Blocks = BTreeMap<u64, (u64, Digest)>;

/// Number of lines of the header.
const HEAD: usize = 6;

/// Reads all statements of a file.
///
/// # Errors
/// When the file is damaged. Only its last lines may be cut off.
pub(crate) fn blocks(text: &[u8]) -> Result<Blocks, String> {
    let mut blocks = Blocks::new();
    let (mut lines, mut number, mut at) = (Vec::new(), 0, 0);
    let mut is_any_sound = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = at;
        at += line.len();
        let line = str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
        let line = line.unwrap_or_default();
        let Some(check) = line.strip_prefix("# check ") else {
            lines.push(line);
            continue;
        };
        if blake3::hash(&text[..end]).to_hex().as_str() != check {
            let is_last = at == text.len() && is_any_sound;
            return if is_last { Ok(blocks) } else { Err("a check does not hold".to_owned()) };
        }
        for line in lines.drain(..) {
            number += 1;
            if number > HEAD && !line.starts_with('#') {
                apply(&mut blocks, line).ok_or_else(|| format!("{line:?} is no line of it"))?;
            }
        }
        is_any_sound = true;
    }
    if is_any_sound { Ok(blocks) } else { Err("nothing that it says has a check".to_owned()) }
}

fn apply(blocks: &mut Blocks, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (start, len) = (number()?, number()?);
    let (range, word) = (start..start.checked_add(len)?, words.next()?);
    forget(blocks, &range);
    let digest = match word {
        "?" => return Some(()),
        "zeros" => None,
        hex => Some(blake3::Hash::from_hex(hex).ok()?.into()),
    };
    blocks.insert(start, (range.end, digest));
    Some(())
}

/// Removes the statements about a range. A statement about zeros is split.
fn forget(blocks: &mut Blocks, range: &Range<u64>) {
    let hit: Vec<_> = overlapping(blocks, range).map(|(start, block)| (*start, *block)).collect();
    for (start, (end, digest)) in hit {
        blocks.remove(&start);
        if digest.is_none() && start < range.start {
            blocks.insert(start, (range.start, None));
        }
        if digest.is_none() && range.end < end {
            blocks.insert(range.end, (end, None));
        }
    }
}

/// Returns the statements that touch a range.
pub(crate) fn overlapping<'a>(
    blocks: &'a Blocks,
    range: &'a Range<u64>,
) -> impl Iterator<Item = (&'a u64, &'a (u64, Digest))> {
    blocks.range(..range.end).filter(|(_, (end, _))| *end > range.start)
}
