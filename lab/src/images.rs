//! The files that are written to the target, or read from it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::scenario::Source;

/// A folder in memory, with the image that was made last.
#[derive(Debug)]
pub struct Images {
    folder: PathBuf,
    made: Option<(Source, u64)>,
}

/// Every machine has this folder, and the lab has a mount of its own over it.
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

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Makes an image of that many bytes, unless the one made last is such a one.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be filled.
    pub fn make(&mut self, source: Source, bytes: u64) -> Result<(), Error> {
        if self.made != Some((source, bytes)) {
            self.made = None;
            let path = self.image();
            make(&path, source, bytes).map_err(|cause| Error::File { path, cause })?;
            self.made = Some((source, bytes));
        }
        Ok(())
    }

    /// Where to read to.
    pub fn copy(&self) -> PathBuf {
        self.folder.join("copy")
    }

    /// Makes a file to read to that has all its memory already: what is measured shall be the way
    /// there, not how a file gets its pages.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be filled.
    pub fn make_room(&self, bytes: u64) -> Result<(), Error> {
        let path = self.copy();
        let holds = fs::metadata(&path).map_or(0, |found| found.blocks() * 512);
        if holds >= bytes {
            return Ok(());
        }
        let fill = || io::copy(&mut io::repeat(0).take(bytes), &mut File::create(&path)?).map(drop);
        fill().map_err(|cause| Error::File { path: path.clone(), cause })
    }

    /// Gives the memory of what was read back.
    pub fn clear_room(&self) {
        // Nothing there is what is wanted.
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
    }
}
