//! The file that a password is read from.

use std::env;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use iscsi_initiator::{Secret, Url};
use tokio::task::spawn_blocking;

use crate::error::Error;
use crate::location::Location;
use crate::progress::say;

/// A password has no more bytes.
const MAX_LEN: u64 = 4096;
const NO_USER: Error = Error::Usage(
    "--password-file needs a user to whom it belongs; write iscsi://USER@HOST/..., or set \
     LIBISCSI_CHAP_USERNAME",
);

/// Gives the password in a file to each unit whose URL has none.
pub(crate) async fn apply<'a>(
    path: Option<&Path>,
    ends: impl IntoIterator<Item = &'a mut Location>,
) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    let has_user = env::var_os("LIBISCSI_CHAP_USERNAME").is_some_and(|user| !user.is_empty());
    let wants = |url: &Url| url.password.is_none() && (url.user.is_some() || has_user);
    let urls = ends.into_iter().filter_map(Location::url_mut).filter(|url| wants(url));
    let urls: Vec<_> = urls.collect();
    if urls.is_empty() {
        return Err(NO_USER);
    }
    let owned: PathBuf = path.into();
    let read = spawn_blocking(move || read(&owned)).await.map_err(io::Error::from).flatten();
    let name = || path.to_string_lossy().into();
    let (secret, is_open) = read.map_err(|cause| Error::PasswordFile { name: name(), cause })?;
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
    let mut bytes = Vec::new();
    file.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    if bytes.is_empty() || bytes.len() as u64 > MAX_LEN {
        let why = "it holds no password, which is one line of at most 4096 bytes";
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    let is_open = metadata.is_file() && metadata.permissions().mode() & 0o077 != 0;
    Ok((bytes.into(), is_open))
}
