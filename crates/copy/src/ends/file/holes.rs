//! Finds the holes of a file (`SEEK_HOLE`), and makes some (`FALLOC_FL_PUNCH_HOLE`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use iscsi_block_device::{Extent, ExtentState};
use rustix::fs::{FallocateFlags, SeekFrom as Place, fallocate, seek};
use rustix::io::Errno;

/// Alignment of the holes that are punched in block devices, bytes. A device punches only whole logical
/// blocks, and most devices have logical blocks of this length or of a divisor of it.
const BLOCK: u64 = 4 << 10;
/// Largest number of extents in one report.
const MAX_EXTENTS: usize = 1024;
/// Length of the zeros that one call writes, bytes.
const ZEROS: usize = 1 << 20;

/// Punches a hole. The bytes of the range that lie in partly covered blocks of the file system become zeros.
pub(super) fn punch(file: &File, range: &Range<u64>) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, range.start, range.end - range.start)
}

/// Returns the whole blocks in a range; where there are none, an empty range at any position.
pub(super) fn blocks(range: &Range<u64>) -> Range<u64> {
    let end = range.end - range.end % BLOCK;
    range.start.next_multiple_of(BLOCK).min(end)..end
}

/// Zeroes a range where the system punches whole blocks only: punches the whole blocks, and writes zeros to
/// the bytes around them.
pub(super) fn zero_around_blocks(file: &File, range: Range<u64>) -> io::Result<()> {
    let blocks = blocks(&range);
    if blocks.is_empty() || punch(file, &blocks).is_err() {
        return write_zeros(file, range);
    }
    write_zeros(file, range.start..blocks.start)?;
    write_zeros(file, blocks.end..range.end)
}

pub(super) fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let part = &zeros[..left.min(zeros.len())];
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Returns the holes and the data of a range after a sync of the file: file systems have reported holes where
/// data was not on the medium yet (openzfs#15526). Where the sync fails, everything counts as data.
pub(super) fn synced_extents(
    file: &File,
    range: Range<u64>,
    sync: fn(&File) -> io::Result<()>,
) -> io::Result<Vec<Extent>> {
    if sync(file).is_err() {
        return Ok(vec![Extent::new(range.start, range.end - range.start, ExtentState::Data)]);
    }
    extents(file, range)
}

/// Returns the holes and the data of a range, as the file system reports them; without support everything is
/// data.
fn extents(file: &File, range: Range<u64>) -> io::Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut at = range.start;
    while at < range.end && found.len() < MAX_EXTENTS {
        let data = find(file, Place::Data(at), Some(at))?.unwrap_or(range.end).min(range.end);
        if data > at {
            found.push(Extent::new(at, data - at, ExtentState::Deallocated));
        }
        if data < range.end {
            let hole = find(file, Place::Hole(data), None)?.unwrap_or(range.end).min(range.end);
            found.push(Extent::new(data, hole - data, ExtentState::Data));
            at = hole;
        } else {
            at = range.end;
        }
    }
    Ok(found)
}

/// Returns the offset of the next data or hole; `None` if there is none before the end of the file. Returns
/// `unknown` where the system does not support `SEEK_DATA` and `SEEK_HOLE` (block devices, some file
/// systems).
fn find(file: &File, place: Place, unknown: Option<u64>) -> io::Result<Option<u64>> {
    match seek(file, place) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(unknown),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn a_file_is_synced_before_its_holes_are_believed() {
        let path = std::env::temp_dir().join(format!("iscsi-copy-sync-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let told = |sync| synced_extents(&file, 4096..8192, sync).unwrap();
        let state = |told: Vec<Extent>| told.iter().map(|extent| extent.state).collect::<Vec<_>>();
        assert_eq!(state(told(File::sync_data)), [ExtentState::Deallocated]);
        let fails = |_: &File| Err(io::Error::from(Errno::IO));
        assert_eq!(told(fails), [Extent::new(4096, 4096, ExtentState::Data)]);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn blocks_are_punched_and_the_bytes_around_them_written() {
        let path = std::env::temp_dir().join(format!("iscsi-copy-zeros-{}", std::process::id()));
        let len = 5 * BLOCK;
        for range in [0..len, 1..len - 1, 512..1024, BLOCK - 1..BLOCK + 1, BLOCK + 1..3 * BLOCK] {
            let inside = |at: u64| if range.contains(&at) { 0 } else { 7 };
            let expected: Vec<u8> = (0..len).map(inside).collect();
            fs::write(&path, vec![7; expected.len()]).unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            zero_around_blocks(&file, range.clone()).unwrap();
            let found = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            assert!(found == expected, "{range:?}");
        }
    }
}
