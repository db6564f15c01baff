//! Files that are there as a whole, whatever happens.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::Builder;

use crate::file_options::check_folder;

/// How the names of files begin that take the place of others.
const PREFIX: &str = ".iscsi-copy.";

/// Puts a file with this text in the place of the one of that name, durably: whatever happens meanwhile, one of
/// them is there. Gives it back, open at its end.
///
/// It is written under a name that nobody can know before, and that is nobody's file: what somebody has put there, a
/// file or a link, would be overwritten. It is readable as the one before, or by its user alone. Where the path is a
/// link, the file behind it is replaced.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<File> {
    let path = resolved(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    check_folder(&fs::canonicalize(folder)?)?;
    let opened = File::open(folder)?;
    let mut new = Builder::new().prefix(PREFIX).tempfile_in(folder)?;
    if let Ok(before) = fs::symlink_metadata(&path) {
        new.as_file().set_permissions(Permissions::from_mode(before.mode() & 0o777))?;
    }
    new.write_all(text)?;
    new.as_file().sync_all()?;
    let file = new.persist(&path).map_err(|error| error.error)?;
    // The name is durable when its folder is.
    opened.sync_all()?;
    Ok(file)
}

/// What is in a file that is to be [replaced](replace), if there is one, as [`read`] reads it.
pub(crate) fn read_replaced(path: &Path, title: &str) -> io::Result<Option<Vec<u8>>> {
    read(&resolved(path)?, title)
}

/// What is in a file, if there is one; it may be a pipe. Of one that does not begin with `title`, the beginning: it is
/// another's, and may be a disk.
pub(crate) fn read(path: &Path, title: &str) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    Read::by_ref(&mut file).take(title.len() as u64).read_to_end(&mut text)?;
    if text == title.as_bytes() {
        file.read_to_end(&mut text)?;
    }
    Ok(Some(text))
}

/// Where a file is behind a link. What is there and is no regular file is refused: a pipe would be waited for, and a
/// device would become a file.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let invalid = |why| io::Error::new(ErrorKind::InvalidInput, why);
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path.to_owned()),
        metadata => metadata?,
    };
    if !metadata.is_symlink() {
        let why = "it is no regular file; name another one";
        return if metadata.is_file() { Ok(path.to_owned()) } else { Err(invalid(why)) };
    }
    match fs::canonicalize(path) {
        // Who has made the link decides where a file appears.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(invalid("it is a link that leads nowhere; name the file itself"))
        }
        resolved => self::resolved(&resolved?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = format!("iscsi-copy-replace-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn nothing_but_the_file_is_touched() {
        let folder = folder("touched");
        let (kept, precious) = (folder.join("kept"), folder.join("precious"));
        fs::write(&precious, "precious").unwrap();
        fs::write(folder.join("kept.new"), "precious").unwrap();
        symlink(&precious, folder.join("kept.tmp")).unwrap();
        replace(&kept, b"first").unwrap();
        assert_eq!(mode(&kept), 0o600);
        fs::set_permissions(&kept, Permissions::from_mode(0o640)).unwrap();
        replace(&kept, b"second").unwrap();
        assert_eq!((fs::read(&kept).unwrap(), mode(&kept)), (b"second".to_vec(), 0o640));
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let others = ["kept.new", "precious"].map(|name| fs::read(folder.join(name)).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, ["kept", "kept.new", "kept.tmp", "precious"]);
        assert_eq!(others, [b"precious", b"precious"]);
    }

    #[test]
    fn behind_a_link_the_file_is_replaced_and_what_is_no_file_is_refused() {
        let folder = folder("links");
        let (kept, link) = (folder.join("kept"), folder.join("link"));
        replace(&kept, b"first").unwrap();
        symlink(&kept, &link).unwrap();
        replace(&link, b"second").unwrap();
        let is_link = fs::symlink_metadata(&link).unwrap().is_symlink();
        let second = read_replaced(&link, "sec").unwrap();
        fs::remove_file(&kept).unwrap();
        let nowhere = [replace(&link, b"third").map(drop), read_replaced(&link, "").map(drop)];
        let device = replace(Path::new("/dev/null"), b"fourth").map(drop);
        let is_made = fs::exists(&kept).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((is_link, second), (true, Some(b"second".to_vec())));
        for refused in nowhere {
            assert!(refused.unwrap_err().to_string().contains("leads nowhere"));
        }
        assert!(device.unwrap_err().to_string().contains("no regular file"));
        assert!(!is_made);
    }

    #[test]
    fn of_a_file_of_others_no_more_than_the_beginning_is_read() {
        let folder = folder("begins");
        let path = folder.join("disk");
        fs::write(&path, vec![7; 100]).unwrap();
        let found =
            [read(&path, "title"), read(&path, "\u{7}\u{7}"), read(&folder.join("none"), "")];
        fs::remove_dir_all(&folder).unwrap();
        let lengths = found.map(|text| text.unwrap().map(|text| text.len()));
        assert_eq!(lengths, [Some(5), Some(100), None]);
    }
}
