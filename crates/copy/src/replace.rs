//! Files that are there as a whole, whatever happens.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::file_options::check_folder;

/// Puts a file with this text in the place of the one of that name, durably: whatever happens meanwhile, one of
/// them is there. Gives it back, open at its end.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or_else(|| Path::new(".")))?;
    check_folder(&folder)?;
    let mut name = path.to_owned().into_os_string();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name is durable when its folder is.
    File::open(folder)?.sync_all()?;
    Ok(file)
}
