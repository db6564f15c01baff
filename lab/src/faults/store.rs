//! The files of units, on a file system of their own.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::verdict::Held;
use crate::error::Error;
use crate::process::tool;

/// Free space that a full file system leaves, in addition to its current data. A file system cannot become
/// smaller than its data.
const ROOM_KIB: u64 = 8 << 10;

/// The file of a unit, and the file of another unit that may replace it.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    unit: PathBuf,
    bytes: u64,
}

impl Store {
    /// Mounts a file system for the file of a unit.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Tool`] with the reason.
    pub async fn mount(unit: &Path) -> Result<Self, Error> {
        let folder = unit.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        fs::create_dir_all(&folder).map_err(|cause| Error::File { path: folder.clone(), cause })?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=100%", "tmpfs"]).arg(&folder);
        tool(&mut mount).await?;
        Ok(Self { folder, unit: unit.to_owned(), bytes: 0 })
    }

    /// Returns the path of the unit that replaces the first one. It is all zero unless an initiator has
    /// written to it.
    pub fn other(&self) -> PathBuf {
        self.unit.with_extension("other")
    }

    /// Replaces all files of the store by the file of a unit: with the bytes of an image, or all zeros without
    /// allocated memory.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Tool`] with the reason.
    pub async fn renew(
        &mut self,
        unit: &Path,
        bytes: u64,
        image: Option<&Path>,
    ) -> Result<(), Error> {
        self.resize("100%").await?;
        (self.unit, self.bytes) = (unit.to_owned(), bytes);
        let renew = || {
            for entry in fs::read_dir(&self.folder)? {
                fs::remove_file(entry?.path())?;
            }
            match image {
                Some(image) => fs::copy(image, &self.unit).map(drop),
                None => File::create(&self.unit)?.set_len(self.bytes),
            }
        };
        renew().map_err(|cause| Error::File { path: self.unit.clone(), cause })
    }

    /// Shrinks the file system to its used size plus [`ROOM_KIB`], because data may be written between `df` and
    /// the remount.
    pub(super) async fn take_room(&self) -> Result<(), Error> {
        let used = tool(Command::new("df").args(["--output=used", "-k"]).arg(&self.folder)).await?;
        let used: u64 = used.lines().last().and_then(|used| used.trim().parse().ok()).unwrap_or(0);
        self.resize(&format!("{}k", used + ROOM_KIB)).await
    }

    async fn resize(&self, size: &str) -> Result<(), Error> {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(&self.folder);
        tool(&mut mount).await.map(drop)
    }

    /// Compares the unit with the image that was copied to it.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn held_by_unit(&self, image: &Path) -> io::Result<Held> {
        self.held_by_file(&self.unit, image)
    }

    /// Compares a file with the image that the unit held when it was copied to this file.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn held_by_file(&self, copy: &Path, image: &Path) -> io::Result<Held> {
        let equal = same(&mut File::open(copy)?, &mut File::open(image)?)?;
        Ok(Held { equal, other_untouched: self.other_is_untouched()? })
    }

    /// Returns the path of the unit's file.
    pub fn unit(&self) -> &Path {
        &self.unit
    }

    /// Returns the memory that the unit's file takes, bytes; `None` if the system does not report it.
    pub fn allocated(&self) -> Option<u64> {
        fs::metadata(&self.unit).ok().map(|found| found.blocks() * 512)
    }

    /// Returns whether the other unit is all zero; `None` if there is no other unit.
    fn other_is_untouched(&self) -> io::Result<Option<bool>> {
        match File::open(self.other()) {
            Ok(mut other) => same(&mut other, &mut io::repeat(0).take(self.bytes)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether two sources hold the same bytes.
///
/// # Errors
/// The errors of the system.
pub(super) fn same(one: &mut impl Read, other: &mut impl Read) -> io::Result<bool> {
    const PIECE: u64 = 1 << 20;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        one.take(PIECE).read_to_end(&mut left)?;
        other.take(PIECE).read_to_end(&mut right)?;
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_more_or_another_one_is_not_the_same() {
        let long = vec![7; (1 << 20) + 3];
        let mut changed = long.clone();
        changed[1 << 20] = 8;
        let compare = |one: &[u8], other: &[u8]| same(&mut &*one, &mut &*other).unwrap();
        assert!(compare(&long, &long) && compare(&[], &[]));
        for other in [&changed[..], &long[1..], &[]] {
            assert!(!compare(&long, other) && !compare(other, &long));
        }
    }
}
