//! Reads and writes the flushed part of a copy as text, from which another run resumes.
//!
//! The format is that of a mapfile of GNU ddrescue: lines of position, length and state, in which `+` means
//! done, `-` unreadable, and `?` not tried yet. Tools for mapfiles can show it. Comments at its head have the
//! version of the format, the identities of source and destination, and the total length.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use iscsi_block_device::RangeSet;
use thiserror::Error as ThisError;

use crate::boxed::IoFuture;
use crate::ends::identity::Identity;

/// Version of the format that is written, and the latest version that is read.
const VERSION: u32 = 2;
pub(crate) const TITLE: &str = "# iscsi-copy checkpoint ";
const SOURCE: &str = "# source: ";
const DESTINATION: &str = "# destination: ";
const LEFT: &str = "# left: ";
const SESSIONS: &str = "# sessions: ";
/// The status line of ddrescue: position, activity and pass. The values are fixed, and mean that every range
/// was tried once.
const STATUS: &str = "0x0 ? 1";

/// Stores the checkpoints of a copy; each replaces the one before. A store can be a
/// [file](crate::CheckpointFile), or anything else that outlives the copy.
pub trait CheckpointStore: fmt::Debug + Send + Sync {
    /// Stores the flushed ranges and the ranges that the source cannot read, of `total` bytes. After a crash
    /// either this checkpoint or the previous one must exist.
    ///
    /// # Errors
    /// Returns an error if the checkpoint is not stored; then the previous one must remain.
    fn keep(&self, flushed: RangeSet, unreadable: RangeSet, total: u64) -> IoFuture<'_, ()>;

    /// Returns the sessions that runs may have left at the destination, as they were passed to
    /// [`begin_run`](Self::begin_run).
    ///
    /// Returns an error if the sessions cannot be determined.
    fn sessions(&self) -> IoFuture<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Begins a run that may leave these sessions. All later [checkpoints](Self::keep) must contain them.
    fn begin_run(&self, sessions: Vec<String>) {
        drop(sessions);
    }

    /// Ends a run, successful or not: only `sessions` may still have requests in flight. The store may record
    /// in which state the run leaves the destination.
    ///
    /// # Errors
    /// Returns an error if the end is not stored; then the last checkpoint remains.
    fn end_run(&self, sessions: Vec<String>) -> IoFuture<'_, ()> {
        drop(sessions);
        Box::pin(async { Ok(()) })
    }
}

/// A checkpoint: the part of a copy that is at the destination and flushed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// The source of the copy.
    pub source: Identity,
    /// The destination of the copy.
    pub destination: Identity,
    /// The number of bytes to copy.
    pub total: u64,
    /// The ranges that a flush has covered.
    pub flushed: RangeSet,
    /// The ranges that the medium of the source could not read. Another run tries to read them again.
    pub unreadable: RangeSet,
    /// The state in which the last run has left the destination; `None` if the destination is not a file, or
    /// that run has not ended by itself.
    pub left: Option<Identity>,
    /// The sessions that runs may have left at the destination, as the destination
    /// [names](crate::Device::leaves) them. Their requests in flight would overwrite newer data, so the next
    /// run ends them.
    pub sessions: Vec<String>,
}

/// Reasons why a text is not a checkpoint, or not the checkpoint of this copy.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file does not begin like a checkpoint.
    #[error("it is no checkpoint; name another file, or copy without it")]
    Foreign,
    /// The checkpoint has a later version of the format: a newer version of the program has written it.
    #[error("it has format {0}, of a newer version of this program, and {VERSION} is known")]
    Newer(u32),
    /// A line of the checkpoint is malformed, or its ranges overlap or have a gap.
    #[error("it is damaged in line {0}; remove it to begin from the start")]
    Damaged(usize),
    /// The checkpoint is of a copy of another source, or the source has changed since.
    #[error("it is of the source {was}, and this is {is}: nothing that it says holds")]
    OtherSource {
        /// Source in the checkpoint.
        was: Box<Identity>,
        /// Source of this copy.
        is: Box<Identity>,
    },
    /// The destination may have been changed by another program, or may be another file than the one of the
    /// checkpoint.
    #[error("{0}, so nothing that it says holds; remove it to begin from the start")]
    Doubtful(String),
    /// The checkpoint is of a copy to another destination.
    #[error("it is of the destination {was}, and this is {is}: nothing that it says holds")]
    OtherDestination {
        /// Destination in the checkpoint.
        was: Box<Identity>,
        /// Destination of this copy.
        is: Box<Identity>,
    },
}

impl Checkpoint {
    /// Checks that the checkpoint belongs to a copy from this source to this destination.
    ///
    /// # Errors
    /// [`CheckpointError::OtherSource`], [`CheckpointError::OtherDestination`].
    pub fn check(&self, source: &Identity, destination: &Identity) -> Result<(), CheckpointError> {
        if self.source != *source {
            let (was, is) = (self.source.clone().into(), source.clone().into());
            return Err(CheckpointError::OtherSource { was, is });
        }
        if self.destination != *destination {
            let (was, is) = (self.destination.clone().into(), destination.clone().into());
            return Err(CheckpointError::OtherDestination { was, is });
        }
        Ok(())
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, total, flushed, unreadable, left, sessions } = self;
        writeln!(f, "{TITLE}{VERSION}\n{SOURCE}{source}\n{DESTINATION}{destination}")?;
        left.iter().try_for_each(|left| writeln!(f, "{LEFT}{left}"))?;
        sessions.iter().try_for_each(|told| writeln!(f, "{SESSIONS}{told}"))?;
        writeln!(f, "# current position, state, pass\n{STATUS}\n# position, length, state")?;
        let mut at = 0;
        let mut line = |range: Range<u64>, state: char| match range.end.checked_sub(range.start) {
            Some(len) if len > 0 => writeln!(f, "{:#x} {len:#x} {state}", range.start),
            Some(_) | None => Ok(()),
        };
        let mut unreadable = unreadable.overlap(&(0..*total));
        let flushed = flushed.overlap(&(0..*total));
        flushed.iter().for_each(|range| unreadable.remove(&range));
        let tried = flushed.iter().map(|range| (range, '+'));
        let mut tried: Vec<_> = tried.chain(unreadable.iter().map(|range| (range, '-'))).collect();
        tried.sort_unstable_by_key(|(range, _)| range.start);
        for (range, state) in tried {
            line(at..range.start, '?')?;
            at = range.end;
            line(range, state)?;
        }
        line(at..*total, '?')?;
        // A truncated file lacks this line, so the truncation is detected.
        f.write_str("# end\n")
    }
}

impl FromStr for Checkpoint {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let mut next = || lines.next().unwrap_or_else(|| (text.lines().count(), ""));
        let version = next().1.strip_prefix(TITLE).ok_or(CheckpointError::Foreign)?;
        match version.parse() {
            Ok(1..=VERSION) => {}
            Ok(newer) if newer > VERSION => return Err(CheckpointError::Newer(newer)),
            Ok(_) | Err(_) => return Err(CheckpointError::Damaged(1)),
        }
        let mut identity = |prefix: &str| {
            let (at, line) = next();
            let identity = line.strip_prefix(prefix).and_then(Identity::parse);
            identity.ok_or(CheckpointError::Damaged(at))
        };
        let (source, destination) = (identity(SOURCE)?, identity(DESTINATION)?);
        let (mut total, mut flushed, mut unreadable) = (0, RangeSet::new(), RangeSet::new());
        let (mut left, mut sessions) = (None, Vec::new());
        loop {
            let (at, line) = next();
            if let Some(text) = line.strip_prefix(LEFT) {
                left = Some(Identity::parse(text).ok_or(CheckpointError::Damaged(at))?);
            } else if let Some(told) = line.strip_prefix(SESSIONS) {
                if told.contains(char::is_control) {
                    return Err(CheckpointError::Damaged(at));
                }
                sessions.push(told.to_owned());
            } else {
                break;
            }
        }
        // Skips the status line and the heading of the columns.
        for _ in 1..3 {
            next();
        }
        loop {
            let (number, line) = next();
            if line == "# end" {
                return Ok(Self {
                    source,
                    destination,
                    total,
                    flushed,
                    unreadable,
                    left,
                    sessions,
                });
            }
            let (range, state) = parse_line(line).ok_or(CheckpointError::Damaged(number))?;
            if range.start != total {
                return Err(CheckpointError::Damaged(number));
            }
            total = range.end;
            match state {
                State::Flushed => flushed.insert(range),
                State::Unreadable => unreadable.insert(range),
                State::Untried => {}
            }
        }
    }
}

/// The state of a range.
enum State {
    Flushed,
    Unreadable,
    Untried,
}

/// Parses a line; returns its range and state, or `None` if it is malformed.
fn parse_line(line: &str) -> Option<(Range<u64>, State)> {
    let mut words = line.split_ascii_whitespace();
    let (start, len) = (number(words.next()?)?, number(words.next()?)?);
    let state = match (words.next()?, words.next()) {
        ("+", None) => State::Flushed,
        ("-", None) => State::Unreadable,
        ("?", None) => State::Untried,
        _ => return None,
    };
    let end = start.checked_add(len).filter(|_| len > 0)?;
    Some((start..end, state))
}

fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checkpoint(flushed: RangeSet, total: u64) -> Checkpoint {
        let (source, destination) = (Identity::new("file", total), Identity::new("naa.6001", 99));
        let (unreadable, left, sessions) = (RangeSet::new(), None, Vec::new());
        Checkpoint { source, destination, total, flushed, unreadable, left, sessions }
    }

    #[test]
    fn it_reads_like_a_map_of_ddrescue() {
        let mut known = checkpoint(RangeSet::from_iter([0..16, 32..48]), 64);
        let text = known.to_string();
        let expected = "# iscsi-copy checkpoint 2\n# source: file, 64 bytes\n\
             # destination: naa.6001, 99 bytes\n# current position, state, pass\n0x0 ? 1\n\
             # position, length, state\n0x0 0x10 +\n0x10 0x10 ?\n0x20 0x10 +\n0x30 0x10 ?\n# end\n";
        assert_eq!(text, expected);
        known.unreadable = RangeSet::from_iter([8..24, 60..70]);
        let text = known.to_string();
        let lines: Vec<_> = text.lines().skip(6).collect();
        let expected = ["0x0 0x10 +", "0x10 0x8 -", "0x18 0x8 ?", "0x20 0x10 +", "0x30 0xc ?"];
        assert_eq!(lines[..5], expected);
        assert_eq!(lines[5..], ["0x3c 0x4 -", "# end"]);
        known.unreadable = RangeSet::from_iter([16..24, 60..64]);
        assert_eq!(text.parse(), Ok(known));
    }

    #[test]
    fn how_a_run_has_left_the_destination_is_read_and_what_older_programs_write() {
        let mut known = checkpoint(RangeSet::from_iter([0..16, 32..48]), 64);
        let older = known.to_string().replace("checkpoint 2", "checkpoint 1");
        assert_eq!(older.parse(), Ok(known.clone()));
        known.left = Some(Identity::new("file changed 1.000000002", 64));
        known.sessions = vec!["iqn.2026-01.a:b 80010203 8".to_owned(), "another".to_owned()];
        assert_eq!(known.to_string().parse(), Ok(known));
    }

    #[test]
    fn of_a_damaged_one_nothing_is_believed() {
        let mut known = checkpoint(RangeSet::from_iter([0..16, 32..48]), 64);
        let whole = known.to_string();
        known.left = Some(Identity::new("file changed 1.000000002", 64));
        known.sessions = vec!["iqn.2026-01.a:b 80010203 8".to_owned()];
        for text in [&whole, &known.to_string()] {
            for cut in 0..text.len() - 1 {
                assert!(text[..cut].parse::<Checkpoint>().is_err(), "{:?}", &text[..cut]);
            }
        }
        let returned = known.to_string().replace("80010203 8\n", "80010203 8\r\r\n");
        assert_eq!(returned.parse::<Checkpoint>(), Err(CheckpointError::Damaged(5)));
        let text = whole;
        let parse = |from: &str, to: &str| text.replace(from, to).parse::<Checkpoint>();
        assert_eq!(parse("# iscsi-copy", "# other"), Err(CheckpointError::Foreign));
        assert_eq!(parse("checkpoint 2", "checkpoint 3"), Err(CheckpointError::Newer(3)));
        assert_eq!(parse("checkpoint 2", "checkpoint 0"), Err(CheckpointError::Damaged(1)));
        assert_eq!(parse("0x10 0x10 ?", "0x10 0x11 ?"), Err(CheckpointError::Damaged(9)));
        assert_eq!(parse("0x10 0x10 ?", "0x11 0x10 ?"), Err(CheckpointError::Damaged(8)));
        assert_eq!(parse("0x10 0x10 ?", "0x10 0x10 *"), Err(CheckpointError::Damaged(8)));
        assert_eq!(parse("0x10 0x10 ?", "0x10 0x0 ?"), Err(CheckpointError::Damaged(8)));
        assert_eq!("".parse::<Checkpoint>(), Err(CheckpointError::Foreign));
    }

    #[test]
    fn another_end_is_told_by_its_name() {
        let known = checkpoint(RangeSet::new(), 64);
        let (source, destination) = (known.source.clone(), known.destination.clone());
        assert_eq!(known.check(&source, &destination), Ok(()));
        let other = Identity::new("naa.6002", 99);
        let error = known.check(&source, &other).unwrap_err().to_string();
        assert!(error.contains("naa.6001") && error.contains("naa.6002"), "{error}");
        let larger = Identity::new("file", 65);
        let error = known.check(&larger, &destination).unwrap_err();
        assert!(matches!(error, CheckpointError::OtherSource { .. }));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            ranges in prop::collection::vec((0..1000_u64, 1..100_u64), 0..10),
            total in 0..1000_u64,
        ) {
            let mut flushed: RangeSet = ranges.iter().map(|(at, len)| *at..at + len).collect();
            flushed.remove(&(total..u64::MAX));
            let known = checkpoint(flushed, total);
            prop_assert_eq!(known.to_string().parse(), Ok(known));
        }
    }
}
