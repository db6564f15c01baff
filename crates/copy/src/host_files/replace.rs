//! Replaces files atomically.

use std::io;
use std::path::Path;

use super::{HostFiles, KeptFile};

/// Replaces the file at a path durably by a file with this text, and returns the new file. After a crash
/// either the old or the new file exists. If the path is a symbolic link, the file that it leads to is
/// replaced.
pub(crate) fn replace(
    files: &dyn HostFiles,
    path: &Path,
    text: &[u8],
) -> io::Result<Box<dyn KeptFile>> {
    let mut new = files.create(path)?;
    new.write(text)?;
    // Sync the text before the name: after a crash, a durable name without durable text would lead to an empty
    // file.
    new.sync()?;
    let file = new.take_place()?;
    file.sync_name()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::host_files::system::{SystemFiles, read};

    fn replace(path: &Path, text: &[u8]) -> io::Result<Box<dyn KeptFile>> {
        super::replace(&SystemFiles, path, text)
    }

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
        let second = SystemFiles.read(&link, "sec").unwrap();
        fs::remove_file(&kept).unwrap();
        let nowhere = [replace(&link, b"third").map(drop), SystemFiles.read(&link, "").map(drop)];
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
