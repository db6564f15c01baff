//! Checks that a disk has all writes that a flush has covered.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::block::Block;
use crate::layout::{Layout, WRITERS};

/// Largest number of complaints that are printed.
const MAX_PRINTED: usize = 10;

/// Findings about a disk.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Number of blocks that are as before the writers began, and that no flushed write covers.
    pub(crate) untouched: u64,
    /// Number of blocks with the last generation that was flushed to their place.
    pub(crate) flushed: u64,
    /// Number of blocks with a later generation.
    pub(crate) later: u64,
    /// Number of blocks that are damaged, or older than the last flush.
    pub(crate) wrong: u64,
    /// Descriptions of the first wrong blocks.
    pub(crate) complaints: Vec<String>,
}

/// Reads a whole disk. `flushed` is the number of flushed writes of each writer.
///
/// # Errors
/// When the disk cannot be read, or is too small for any layout.
pub(crate) fn check(disk: &File, flushed: [u64; WRITERS]) -> io::Result<Findings> {
    let layout = Layout::of(disk)?;
    let mut findings = Findings::default();
    let mut block = Block::zeros();
    for (number, due) in (0..).zip(due(layout, flushed)) {
        disk.read_exact_at(&mut block.0, Layout::offset(number))?;
        findings.add(
            number,
            due,
            block.generation(layout, number).map_err(|damaged| damaged.to_string()),
        );
    }
    Ok(findings)
}

/// Returns the lowest generation that each block may have after the flushes.
fn due(layout: Layout, flushed: [u64; WRITERS]) -> Vec<u64> {
    let mut due = vec![0; usize::try_from(layout.blocks()).unwrap_or(0)];
    for (writer, flushed) in (0..).zip(flushed) {
        for generation in 1..=flushed {
            let place = usize::try_from(layout.place(writer, generation)).unwrap_or(usize::MAX);
            if let Some(due) = due.get_mut(place) {
                *due = generation;
            }
        }
    }
    due
}

impl Findings {
    fn add(&mut self, number: u64, due: u64, found: Result<u64, String>) {
        let complaint = match found {
            Ok(found) if found < due => {
                format!("block {number} has generation {found}, and {due} was flushed")
            }
            Ok(found) => {
                match found {
                    0 => self.untouched += 1,
                    found if found == due => self.flushed += 1,
                    _ => self.later += 1,
                }
                return;
            }
            Err(damaged) => format!("block {number} {damaged}; {due} was flushed"),
        };
        self.wrong += 1;
        if self.complaints.len() < MAX_PRINTED {
            self.complaints.push(complaint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::make;

    const LEN: u64 = 1 << 20;

    /// Returns a disk to which each writer has made `written` writes.
    fn disk(name: &str, written: [u64; WRITERS]) -> File {
        let path = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
        let disk = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        make(&disk, LEN).unwrap();
        let layout = Layout::new(LEN).unwrap();
        for (writer, written) in (0..).zip(written) {
            for generation in 1..=written {
                let number = layout.place(writer, generation);
                let block = Block::new(number, generation);
                disk.write_all_at(&block.0, Layout::offset(number)).unwrap();
            }
        }
        disk
    }

    #[test]
    fn what_was_written_since_the_flush_may_be_there_and_need_not() {
        let disk = disk("later", [40, 1, 7, 300]);
        for flushed in [[40, 1, 7, 300], [12, 0, 7, 299]] {
            let findings = check(&disk, flushed).unwrap();
            assert_eq!((findings.wrong, &findings.complaints), (0, &vec![]));
            assert_eq!(findings.untouched + findings.flushed + findings.later, 256);
            assert_eq!(findings.later == 0, flushed[0] == 40);
        }
    }

    #[test]
    fn a_flushed_write_that_is_not_there_is_found() {
        let written = [40, 1, 7, 300];
        let disk = disk("missing", written);
        for writer in 0..4 {
            let mut flushed = written;
            flushed[writer] += 1;
            let findings = check(&disk, flushed).unwrap();
            assert_eq!(findings.wrong, 1);
            assert!(
                findings.complaints[0].ends_with(&format!("and {} was flushed", flushed[writer]))
            );
        }
    }

    #[test]
    fn damage_is_found_also_where_nothing_was_flushed() {
        let disk = disk("damaged", [0; 4]);
        disk.write_all_at(b"x", LEN - 1).unwrap();
        let findings = check(&disk, [0; 4]).unwrap();
        assert_eq!((findings.wrong, findings.untouched), (1, 255));
    }
}
