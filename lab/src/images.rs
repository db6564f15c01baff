//! Makes the image files that are written to the target, and the files that are read from it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::scenario::Source;

/// A folder in memory, and the image that it holds.
#[derive(Debug)]
pub struct Images {
    folder: PathBuf,
    made: Option<(Source, u64)>,
}

/// Number of extents of data in a scattered image.
pub const EXTENTS: u64 = 32;
/// Divisor for the share of a scattered image that is data.
const SCATTERED: u64 = 8;

/// Every machine has this folder. The lab mounts its own file system there.
const FOLDER: &str = "/mnt";

impl Images {
    /// Mounts the folder.
    ///
    /// # Errors
    /// [`Error::Tool`] if the system refuses.
    pub fn mount() -> Result<Self, Error> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=100%", "tmpfs", FOLDER]);
        if mount.status()?.success() {
            Ok(Self { folder: FOLDER.into(), made: None })
        } else {
            let program = "mount -t tmpfs".to_owned();
            Err(Error::Tool { program, message: format!("no memory over {FOLDER}") })
        }
    }

    /// Returns the path of the image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Makes an image of `bytes` bytes, unless the folder already holds it.
    ///
    /// # Errors
    /// [`Error::File`] if the image cannot be filled.
    pub fn make(&mut self, source: Source, bytes: u64) -> Result<(), Error> {
        if self.made != Some((source, bytes)) {
            self.made = None;
            let path = self.image();
            make(&path, source, bytes).map_err(|cause| Error::File { path, cause })?;
            self.made = Some((source, bytes));
        }
        Ok(())
    }

    /// Returns the path of the file to read to.
    pub fn copy(&self) -> PathBuf {
        self.folder.join("copy")
    }

    /// Makes the file to read to, with all its memory allocated, so that the measurement does not include the
    /// allocation of pages.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be filled.
    pub fn make_room(&self, bytes: u64) -> Result<(), Error> {
        let path = self.copy();
        let holds = fs::metadata(&path).map_or(0, |found| found.blocks() * 512);
        if holds >= bytes {
            return Ok(());
        }
        let fill = || io::copy(&mut io::repeat(0).take(bytes), &mut File::create(&path)?).map(drop);
        fill().map_err(|cause| Error::File { path: path.clone(), cause })
    }

    /// Frees the memory of the file that was read to.
    pub fn clear_room(&self) {
        // A missing file is the wanted state.
        let _absent = fs::remove_file(self.copy());
    }
}

fn make(path: &Path, source: Source, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    match source {
        Source::Sparse => file.set_len(bytes),
        Source::Random => {
            io::copy(&mut File::open("/dev/urandom")?.take(bytes), &mut file).map(drop)
        }
        Source::Scattered => {
            file.set_len(bytes)?;
            let distance = bytes / EXTENTS;
            for extent in 0..EXTENTS {
                file.seek(SeekFrom::Start(extent * distance))?;
                let data = File::open("/dev/urandom")?.take(distance / SCATTERED);
                io::copy(&mut { data }, &mut file)?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_a_scattered_image_is_data() {
        let path = std::env::temp_dir().join(format!("lab-image-{}", std::process::id()));
        let bytes = 32 << 20;
        make(&path, Source::Scattered, bytes).unwrap();
        let image = fs::read(&path).unwrap();
        let blocks = fs::metadata(&path).unwrap().blocks();
        fs::remove_file(&path).unwrap();
        assert_eq!(image.len() as u64, bytes);
        for extent in image.chunks((bytes / EXTENTS) as usize) {
            let (data, hole) = extent.split_at(extent.len() / usize::try_from(SCATTERED).unwrap());
            assert!(data.chunks(4096).all(|page| page.iter().any(|byte| *byte != 0)));
            assert!(hole.iter().all(|byte| *byte == 0));
        }
        assert!(blocks * 512 <= bytes / SCATTERED + (1 << 20), "{blocks} blocks are taken");
    }
}
