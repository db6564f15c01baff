//! Checks the files that a command line names: each file must have one use only.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::{Args, RangesFrom};
use crate::end::Medium;
use crate::error::Error;
use crate::location::Location;
use crate::side::Side;

/// A file that a command line names. It may not exist yet.
#[derive(Clone, Debug)]
pub(crate) struct NamedFile {
    /// The option that names the file, or the side of the copy.
    pub(crate) what: &'static str,
    path: PathBuf,
    use_: Use,
}

/// The use of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Read,
    /// The file is overwritten in place.
    Written,
    /// The file is replaced by another one, repeatedly.
    Replaced,
}

/// Returns all files that the command line names.
pub(crate) fn all(args: &Args, [from, to]: [&Location; 2]) -> Vec<NamedFile> {
    let ranges = match &args.delta.ranges {
        Some(RangesFrom::File(path)) => Some(path.as_path()),
        Some(RangesFrom::Bitmap(_)) | None => None,
    };
    // The file of a volume only describes the volume, so it is read.
    let of_destination = if let Location::Path(_) = to { Use::Written } else { Use::Read };
    let files = [
        ("source", from.file(), Use::Read),
        ("destination", to.file(), of_destination),
        ("--checkpoint", args.resumption.checkpoint.as_deref(), Use::Replaced),
        ("--digests", args.delta.digests.as_deref(), Use::Replaced),
        ("--ranges", ranges, Use::Read),
        ("--termination-log", args.controller.termination_log.as_deref(), Use::Written),
    ];
    let passwords = args.passwords.files().map(|(option, path)| (option, path, Use::Read));
    let named = files
        .into_iter()
        .chain(passwords)
        .filter_map(|(what, path, use_)| Some(NamedFile { what, path: path?.to_owned(), use_ }));
    named.collect()
}

impl NamedFile {
    /// Returns a file that is read, and is neither source nor destination.
    pub(crate) fn read(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.to_owned(), use_: Use::Read }
    }

    /// Returns a file that is kept between copies: a checkpoint or a digest file.
    pub(crate) fn kept(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.to_owned(), use_: Use::Replaced }
    }

    /// Returns a file that is overwritten in place, and is neither source nor destination.
    pub(crate) fn written(what: &'static str, path: &Path) -> Self {
        Self { what, path: path.to_owned(), use_: Use::Written }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.use_ != Use::Read
    }

    /// Returns the identities of the file that stay valid during its use. A file that is replaced is identified
    /// by its directory entry only: after the replacement, any other file may get its inode number.
    pub(crate) fn lasting_media(&self) -> Vec<Medium> {
        let mut media = self.media();
        media.retain(|medium| self.use_ != Use::Replaced || matches!(medium, Medium::Entry(..)));
        media
    }

    /// Returns all identities of the file: of the existing file, and of its directory entry, where another file
    /// may replace it. A file that is not regular has no identity.
    fn media(&self) -> Vec<Medium> {
        let mut media = Vec::new();
        let there = fs::metadata(&self.path);
        if there.as_ref().is_ok_and(|there| !there.is_file()) {
            return media;
        }
        media.extend(there.ok().map(|there| Medium::file(&there)));
        media.extend(entry(&self.path).ok().flatten());
        media
    }
}

/// Returns the directory entry that a path leads to, after links are resolved.
fn entry(path: &Path) -> io::Result<Option<Medium>> {
    // A path that does not exist cannot be resolved itself; only its directory is.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder: Metadata = fs::metadata(folder.unwrap_or_else(|| Path::new(".")))?;
    let name = path.file_name().map(ToOwned::to_owned);
    Ok(name.map(|name| Medium::Entry(folder.dev(), folder.ino(), name)))
}

/// Checks that no written file has another use under any of its names. For the source and the destination, call
/// it again after they are open.
///
/// # Errors
/// [`Error::OneFile`].
pub(crate) fn check(files: &[NamedFile]) -> Result<(), Error> {
    let media: Vec<_> = files.iter().map(NamedFile::media).collect();
    for (at, file) in files.iter().enumerate() {
        for (before, other) in files.iter().enumerate().take(at) {
            let is_written = file.is_written() || other.is_written();
            let are_ends = (other.what, file.what) == ("source", "destination");
            let is_one = media[at].iter().any(|medium| media[before].contains(medium));
            if is_written && is_one && !are_ends {
                return Err(Error::OneFile { one: other.what, other: file.what });
            }
        }
    }
    Ok(())
}

impl From<Side> for &'static str {
    fn from(side: Side) -> Self {
        match side {
            Side::Source => "source",
            Side::Destination => "destination",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn kept(what: &'static str, path: &Path) -> NamedFile {
        NamedFile::kept(what, path)
    }

    #[test]
    fn one_file_is_found_under_all_its_names() {
        let folder = std::env::temp_dir().join(format!("block-copy-named-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        let path = |name: &str| folder.join(name);
        fs::write(path("file"), "").unwrap();
        fs::hard_link(path("file"), path("hard")).unwrap();
        symlink(path("file"), path("soft")).unwrap();
        symlink(&folder, path("deep/back")).unwrap();
        let same = [
            ("file", "deep/../file"),
            ("file", "hard"),
            ("soft", "file"),
            ("deep/back/soft", "hard"),
            ("new", "deep/back/new"),
            ("new", "./new"),
        ];
        let found = same.map(|(one, other)| {
            check(&[kept("one", &path(one)), NamedFile::read("other", &path(other))]).is_err()
        });
        let others = [("file", "other"), ("new", "new.new"), ("new", "deep/new")];
        let others = others.map(|(one, other)| {
            check(&[kept("one", &path(one)), kept("other", &path(other))]).is_ok()
        });
        let read = check(
            &[("one", "file"), ("other", "soft")]
                .map(|(what, name)| NamedFile::read(what, &path(name))),
        );
        let devices =
            check(&[kept("one", Path::new("/dev/null")), kept("two", Path::new("/dev/null"))]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((found, others), ([true; 6], [true; 3]));
        assert!(read.is_ok() && devices.is_ok(), "nothing is overwritten");
    }
}
