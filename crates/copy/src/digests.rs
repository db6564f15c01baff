//! Stores a digest of each block of a destination, so that the next copy sends only the blocks that differ.
//!
//! The text has one line for each block: position, length, and the BLAKE3 of its bytes, as `b3sum` prints it;
//! consecutive blocks of zeros share a line. A line that ends in `?` invalidates earlier lines about its
//! bytes. `# sessions` lines name the sessions that may still write to the destination, until a line says
//! that these sessions are settled. A `# left` line records the state in which a copy left a file. Lines are
//! valid only if a `# check` line with the BLAKE3 of everything above it follows them.

pub(crate) mod delta;
pub(crate) mod digesting;
pub(crate) mod file;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;

use iscsi_block_device::RangeSet;
use thiserror::Error as ThisError;

use crate::ends::identity::Identity;
use crate::zeros::is_zero;

/// Version of the format that is written, and the latest version that is read.
const VERSION: u32 = 2;
pub(crate) const TITLE: &str = "# iscsi-copy digests ";
const ALGORITHM: &str = "# algorithm: blake3";
const BLOCK_SIZE: &str = "# block size: ";
const SOURCE: &str = "# source: ";
const DESTINATION: &str = "# destination: ";
const COLUMNS: &str = "# position, length, digest";
const CHECK: &str = "# check ";
/// Line at the end of a complete copy: all lines above it were saved.
const END: &str = "# end";
/// Line with the state in which a copy has left the destination file, after everything above the line was
/// done.
const LEFT: &str = "# left: ";
/// Lines that name the sessions a copy may leave at the destination, and the line that says that the sessions
/// of all lines above it have ended.
const SESSIONS: &str = "# sessions: ";
const SETTLED: &str = "# settled";
const ZEROS: &str = "zeros";
const UNKNOWN: &str = "?";

/// Smallest size of a block, bytes.
const MIN_BLOCK: u64 = 4 << 10;
/// Largest size of a block, bytes.
const MAX_BLOCK: u64 = 64 << 20;

/// The digest of a block's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Digest {
    Zeros,
    Blake3([u8; 32]),
}

impl Digest {
    pub(crate) fn of(data: &[u8]) -> Self {
        if is_zero(data) { Self::Zeros } else { Self::Blake3(blake3::hash(data).into()) }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str(ZEROS),
            Self::Blake3(digest) => blake3::Hash::from_bytes(*digest).fmt(f),
        }
    }
}

/// The digests of the blocks of a destination, as far as a flush has covered them. Blocks begin at multiples
/// of their size; the last one of a copy may be shorter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Digests {
    block_size: u64,
    /// Blocks of data: the first byte, the byte after the last one, and the BLAKE3.
    blocks: BTreeMap<u64, (u64, [u8; 32])>,
    /// Blocks of zeros.
    zeros: RangeSet,
}

/// Reasons why a text is not a valid list of digests, or belongs to another destination.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum DigestsError {
    /// The file does not begin like a file of digests.
    #[error("it is no file of digests; name another file")]
    Foreign,
    /// The file has a later version of the format: a newer version of the program has written it.
    #[error("it has format {0}, of a newer version of this program, and {VERSION} is known")]
    Newer(u32),
    /// The digests of the file were made with another algorithm than BLAKE3.
    #[error("its digests are not BLAKE3, and no other algorithm is known")]
    Algorithm,
    /// A line of the file is malformed.
    #[error("it is damaged in line {0}; remove it to send all")]
    Damaged(usize),
    /// The digests are of another destination.
    #[error("it is of the destination {was}, and this is {is}: nothing that it says holds")]
    OtherDestination {
        /// Destination in the file.
        was: Box<Identity>,
        /// Destination that is to be written or verified.
        is: Box<Identity>,
    },
}

impl Digests {
    /// Creates an empty set of digests, of blocks of `block_size` bytes: rounded up to a power of two, 4 KiB to 64 MiB.
    pub fn new(block_size: u64) -> Self {
        let block_size = block_size.clamp(MIN_BLOCK, MAX_BLOCK).next_power_of_two();
        Self { block_size, blocks: BTreeMap::new(), zeros: RangeSet::new() }
    }

    /// Returns the length of a block, bytes.
    pub const fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Returns the number of bytes with a known digest.
    pub fn bytes(&self) -> u64 {
        self.blocks().map(|(range, _)| range.end - range.start).sum::<u64>() + self.zeros.bytes()
    }

    /// Returns the bytes with a known digest.
    pub fn ranges(&self) -> RangeSet {
        let mut ranges = self.zeros.clone();
        ranges.extend(self.blocks().map(|(range, _)| range));
        ranges
    }

    /// Returns whether no digest is known.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.zeros.is_empty()
    }

    /// Returns the blocks of data, in order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Range<u64>, [u8; 32])> + '_ {
        self.blocks.iter().map(|(start, (end, digest))| (*start..*end, *digest))
    }

    pub(crate) const fn zeros(&self) -> &RangeSet {
        &self.zeros
    }

    /// Returns the whole blocks that overlap `range`.
    pub(crate) fn widened(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start - range.start % self.block_size;
        start..range.end.checked_next_multiple_of(self.block_size).unwrap_or(u64::MAX)
    }

    /// Returns the whole blocks that overlap any of `ranges`.
    pub(crate) fn all_widened(&self, ranges: &RangeSet) -> RangeSet {
        ranges.iter().map(|range| self.widened(&range)).collect()
    }

    /// Returns the whole blocks within `range`. In a copy that ends at `end`, the last block may be shorter.
    pub(crate) fn whole(&self, range: &Range<u64>, end: u64) -> Range<u64> {
        let start = range.start.checked_next_multiple_of(self.block_size).unwrap_or(u64::MAX);
        let is_end = range.end == end;
        let last = if is_end { end } else { range.end - range.end % self.block_size };
        let last = last.max(range.start);
        start.min(last)..last
    }

    /// Returns whether a block, or blocks of zeros, are known to have this digest.
    pub(crate) fn has(&self, range: &Range<u64>, digest: Digest) -> bool {
        match digest {
            Digest::Zeros => self.zeros.contains(range),
            Digest::Blake3(digest) => self.blocks.get(&range.start) == Some(&(range.end, digest)),
        }
    }

    /// Returns whether the digest of any block that overlaps `range` is known.
    pub(crate) fn knows_of(&self, range: &Range<u64>) -> bool {
        let wide = self.widened(range);
        self.blocks.range(wide.clone()).next().is_some() || !self.zeros.overlap(&wide).is_empty()
    }

    /// Returns the blocks that lie completely in `range`; consecutive blocks of zeros are one item.
    pub(crate) fn inside(&self, range: &Range<u64>) -> Vec<(Range<u64>, Digest)> {
        let blocks = self.blocks.range(range.clone()).filter(|(_, (end, _))| *end <= range.end);
        let blocks = blocks.map(|(start, (end, digest))| (*start..*end, Digest::Blake3(*digest)));
        let zeros = self.zeros.overlap(range);
        let zeros = zeros.iter().map(|zeros| {
            let goes_on = self.zeros.contains(&(zeros.end..zeros.end.saturating_add(1)));
            (self.whole(&zeros, if goes_on { u64::MAX } else { zeros.end }), Digest::Zeros)
        });
        blocks.chain(zeros.filter(|(range, _)| !range.is_empty())).collect()
    }

    /// Sets the digest of a block, or of blocks of zeros.
    pub(crate) fn insert(&mut self, range: Range<u64>, digest: Digest) {
        self.forget(&range);
        match digest {
            Digest::Zeros => self.zeros.insert(range),
            Digest::Blake3(digest) => _ = self.blocks.insert(range.start, (range.end, digest)),
        }
    }

    /// Removes the digests of all blocks that overlap `range`.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let wide = self.widened(range);
        let starts: Vec<u64> = self.blocks.range(wide.clone()).map(|(start, _)| *start).collect();
        starts.iter().for_each(|start| _ = self.blocks.remove(start));
        self.zeros.remove(&wide);
    }

    /// Returns the head of a file of digests.
    pub(crate) fn head(&self, source: &Identity, destination: &Identity) -> String {
        format!(
            "{TITLE}{VERSION}\n{ALGORITHM}\n{BLOCK_SIZE}{}\n{SOURCE}{source}\n\
             {DESTINATION}{destination}\n{COLUMNS}\n",
            self.block_size,
        )
    }

    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        self.blocks().for_each(|(range, digest)| known(&mut lines, &range, Digest::Blake3(digest)));
        self.zeros.iter().for_each(|range| known(&mut lines, &range, Digest::Zeros));
        lines
    }

    /// Parses a file of digests. Lines at its end without a correct check were cut off during a write, and are
    /// ignored.
    pub(crate) fn parse(text: &[u8]) -> Result<Kept, DigestsError> {
        let mut reader = Reader { text, at: 0, number: 0, sum: blake3::Hasher::new(), summed: 0 };
        let (digests, destination) = reader.head()?;
        let mut kept = Kept { digests, destination, left: None, sessions: Vec::new() };
        let mut is_first = true;
        while is_first || reader.at < text.len() {
            let first = reader.number + 1;
            let (lines, is_sound) = reader.batch();
            // Lines without a check at the end of the file were cut off during a write. But an end line always directly
            // follows a check, because everything above it was saved before. So where an end line follows other lines,
            // the check between them is damaged.
            let is_cut_off =
                reader.at == text.len() && lines.iter().skip(1).all(|(_, line)| *line != END);
            if !is_sound && (is_first || !is_cut_off) {
                return Err(DigestsError::Damaged(first));
            }
            if is_sound {
                // A later copy has begun, and has not recorded yet in which state it leaves the destination.
                kept.left = None;
                for (number, line) in lines {
                    kept.apply(line).ok_or(DigestsError::Damaged(number))?;
                }
            }
            is_first = false;
        }
        Ok(kept)
    }

    /// Applies a line; returns `None` if it is malformed.
    fn apply(&mut self, line: &str) -> Option<()> {
        if line == END {
            return Some(());
        }
        let mut words = line.split_ascii_whitespace();
        let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (start, len) = (number()?, number()?);
        let range = start..start.checked_add(len).filter(|_| len > 0)?;
        let (word, rest) = (words.next()?, words.next());
        let is_aligned = start.is_multiple_of(self.block_size) && rest.is_none();
        match word {
            _ if !is_aligned => return None,
            UNKNOWN => self.forget(&range),
            ZEROS => self.insert(range, Digest::Zeros),
            _ if len > self.block_size => return None,
            hex => self.insert(range, Digest::Blake3(blake3::Hash::from_hex(hex).ok()?.into())),
        }
        Some(())
    }
}

/// The parsed data of a file of digests.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) digests: Digests,
    /// The destination that the digests describe.
    pub(crate) destination: Identity,
    /// State in which the last copy has left the destination; `None` if that copy has not recorded it, or the
    /// destination is not a file.
    pub(crate) left: Option<Identity>,
    /// Sessions through which copies may still have requests in flight.
    pub(crate) sessions: Vec<String>,
}

impl Kept {
    /// Applies a line; returns `None` if it is malformed.
    fn apply(&mut self, line: &str) -> Option<()> {
        if let Some(left) = line.strip_prefix(LEFT) {
            self.left = Some(Identity::parse(left)?);
        } else if let Some(told) = line.strip_prefix(SESSIONS) {
            self.sessions.push(told.to_owned());
        } else if line == SETTLED {
            self.sessions.clear();
        } else {
            self.digests.apply(line)?;
        }
        Some(())
    }
}

/// Reads the lines of a file.
struct Reader<'a> {
    text: &'a [u8],
    /// Offset of the next line in the text.
    at: usize,
    /// Number of lines read so far.
    number: usize,
    /// BLAKE3 of the first `summed` bytes of the text.
    sum: blake3::Hasher,
    summed: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next line, without its end; `None` after the last one.
    fn line(&mut self) -> Option<&'a str> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let len = rest.iter().position(|byte| *byte == b'\n');
        self.at += len.map_or(rest.len(), |len| len + 1);
        self.number += 1;
        // An empty line is malformed. It stands for a line that is not UTF-8, or has no line end.
        Some(len.map_or("", |len| str::from_utf8(&rest[..len]).unwrap_or_default()))
    }

    /// Reads the head of the file.
    fn head(&mut self) -> Result<(Digests, Identity), DigestsError> {
        let version = self.line().and_then(|line| line.strip_prefix(TITLE));
        match version.ok_or(DigestsError::Foreign)?.parse() {
            Ok(1..=VERSION) => {}
            Ok(newer) if newer > VERSION => return Err(DigestsError::Newer(newer)),
            Ok(_) | Err(_) => return Err(DigestsError::Damaged(1)),
        }
        if self.line() != Some(ALGORITHM) {
            return Err(DigestsError::Algorithm);
        }
        let block_size = self.after(BLOCK_SIZE, |text| text.parse().ok())?;
        let digests = Digests::new(block_size);
        if digests.block_size != block_size {
            return Err(DigestsError::Damaged(self.number));
        }
        self.after(SOURCE, Identity::parse)?;
        let destination = self.after(DESTINATION, Identity::parse)?;
        self.after(COLUMNS, |rest| rest.is_empty().then_some(()))?;
        Ok((digests, destination))
    }

    fn after<T>(
        &mut self,
        prefix: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, DigestsError> {
        let rest = self.line().and_then(|line| line.strip_prefix(prefix));
        rest.and_then(parse).ok_or(DigestsError::Damaged(self.number))
    }

    /// Returns the lines up to and including the next check, each with its number, and whether that check is
    /// correct.
    fn batch(&mut self) -> (Vec<(usize, &'a str)>, bool) {
        let mut lines = Vec::new();
        loop {
            let end = self.at;
            let Some(line) = self.line() else { return (lines, false) };
            if let Some(told) = line.strip_prefix(CHECK) {
                self.sum.update(&self.text[self.summed..end]);
                self.summed = end;
                let is_sound = blake3::Hash::from_hex(told).is_ok_and(|t| t == self.sum.finalize());
                return (lines, is_sound);
            }
            lines.push((self.number, line));
        }
    }
}

/// Adds the line with the digest of a block.
pub(crate) fn known(lines: &mut String, range: &Range<u64>, digest: Digest) {
    // Writing to a `String` cannot fail.
    _ = writeln!(lines, "{:#x} {:#x} {digest}", range.start, range.end - range.start);
}

/// Adds the line that invalidates the digests of a range.
pub(crate) fn unknown(lines: &mut String, range: &Range<u64>) {
    _ = writeln!(lines, "{:#x} {:#x} {UNKNOWN}", range.start, range.end - range.start);
}

/// Returns the line at the end of a complete copy.
pub(crate) fn end() -> String {
    format!("{END}\n")
}

/// Returns the line with the state in which a copy leaves a file.
pub(crate) fn left(left: &Identity) -> String {
    format!("{LEFT}{left}\n")
}

/// Returns the lines that name all sessions which may have requests in flight.
pub(crate) fn sessions(told: &[String]) -> String {
    let told = told.iter().map(|told| format!("{SESSIONS}{told}\n"));
    [format!("{SETTLED}\n")].into_iter().chain(told).collect()
}

/// Returns the check line, which makes the lines above it valid; `sum` covers all lines from the first on.
pub(crate) fn check(sum: &blake3::Hasher) -> String {
    format!("{CHECK}{}\n", sum.finalize())
}

/// Checks that digests belong to this destination.
pub(crate) fn same(was: &Identity, is: &Identity) -> Result<(), DigestsError> {
    if was == is {
        return Ok(());
    }
    Err(DigestsError::OtherDestination { was: was.clone().into(), is: is.clone().into() })
}
