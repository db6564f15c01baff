//! The file that a password is read from.

use std::env;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use iscsi_initiator::{Secret, Url};
use thiserror::Error as ThisError;
use tokio::task::spawn_blocking;

use crate::failure::file_advice;
use crate::output::say;

/// A password has no more bytes.
const MAX_LEN: usize = 4096;
/// The longest line of one, with its end.
const MAX_LINE: usize = MAX_LEN + b"\r\n".len();

/// Why there is no password. Each is the fault of whoever wrote the command line.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum PasswordFileError {
    /// No URL wants a password.
    #[error(
        "--password-file needs a user to whom it belongs; write iscsi://USER@HOST/..., or set \
         LIBISCSI_CHAP_USERNAME"
    )]
    NoUser,
    /// The file cannot be read, or holds none.
    #[error("password file {}: {cause}{}", path.display(), file_advice(cause.kind()))]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

impl PasswordFileError {
    /// The exit status that stands for the error: 2 for a wrong command line, else 1.
    #[must_use]
    pub const fn status(&self) -> u8 {
        match self {
            Self::NoUser => 2,
            Self::Unreadable { .. } => 1,
        }
    }
}

/// Gives the password in a file, its first line, to each URL that has none and names a user, or whose user is in the
/// environment. A file that others may read is warned of on standard error.
///
/// # Errors
/// When no URL wants it, or there is none.
pub async fn apply<'a>(
    path: Option<&Path>,
    urls: impl IntoIterator<Item = &'a mut Url>,
) -> Result<(), PasswordFileError> {
    let Some(path) = path else { return Ok(()) };
    let has_user = env::var_os("LIBISCSI_CHAP_USERNAME").is_some_and(|user| !user.is_empty());
    let wants = |url: &Url| url.password.is_none() && (url.user.is_some() || has_user);
    let urls: Vec<_> = urls.into_iter().filter(|url| wants(url)).collect();
    if urls.is_empty() {
        return Err(PasswordFileError::NoUser);
    }
    let owned: PathBuf = path.into();
    let read = spawn_blocking(move || read(&owned)).await.map_err(io::Error::from).flatten();
    let (secret, is_open) =
        read.map_err(|cause| PasswordFileError::Unreadable { path: path.into(), cause })?;
    if is_open {
        let path = path.display();
        say(&format!("warning: password file {path}: others may read it; chmod 600 {path}\n"));
    }
    urls.into_iter().for_each(|url| url.password = Some(secret.clone()));
    Ok(())
}

/// The password, and whether others than the owner of the file may read it.
fn read(path: &Path) -> io::Result<(Secret, bool)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let bytes = first_line(file)?;
    if bytes.is_empty() || bytes.len() > MAX_LEN {
        let why = "it holds no password, which is its first line, of 1 to 4096 bytes";
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    let is_open = metadata.is_file() && metadata.permissions().mode() & 0o077 != 0;
    Ok((bytes.into(), is_open))
}

/// The first line, without its end; more bytes than a password has where that does not come.
fn first_line(mut from: impl Read) -> io::Result<Vec<u8>> {
    // It does not grow, which would leave parts of a password behind in memory. What stands below the line is not read:
    // in a pipe it may never come.
    let mut line = Vec::with_capacity(MAX_LINE);
    while line.len() < MAX_LINE && from.by_ref().take(1).read_to_end(&mut line)? > 0 {
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
            break;
        }
    }
    Ok(line)
}
