//! Reads the file that the command line names as `volume:FILE`, and opens the volume that it describes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use iscsi_initiator::{Disk, Initiator};
use iscsi_volume::{Description, Volume};
use thiserror::Error as ThisError;
use tokio::task::spawn_blocking;

use crate::exit_status;
use crate::failure::{Kind, file_advice};
use crate::sentence::Sentence;

/// Prefix of an argument that names a volume. To name a file whose path begins with it, write `./` before the
/// path.
const SCHEME: &[u8] = b"volume:";

/// Reason why a volume cannot be opened.
#[derive(Debug, ThisError)]
#[error("volume {}: {cause}", path.display())]
pub struct VolumeError {
    /// The file that describes the volume.
    pub path: PathBuf,
    /// The cause.
    pub cause: VolumeFault,
}

/// Causes of a [`VolumeError`].
#[derive(Debug, ThisError)]
pub enum VolumeFault {
    /// The file cannot be read.
    #[error("{cause}{}", file_advice(cause.kind()))]
    File {
        /// The reason.
        #[from]
        cause: io::Error,
    },
    /// The file does not describe a volume, or the units are not as it describes them.
    #[error("{}", .0.sentence())]
    Volume(#[source] Box<iscsi_volume::Error>),
}

impl From<iscsi_volume::Error> for VolumeFault {
    fn from(cause: iscsi_volume::Error) -> Self {
        Self::Volume(cause.into())
    }
}

impl VolumeError {
    /// Returns the kind of the failure, by the side at fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.cause {
            VolumeFault::File { .. } => Kind::System,
            VolumeFault::Volume(cause) => (&**cause).into(),
        }
    }

    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        match &self.cause {
            VolumeFault::File { cause } => exit_status::of_system(cause),
            VolumeFault::Volume(cause) => exit_status::of_volume(cause),
        }
    }

    fn of<T>(path: &Path, result: Result<T, VolumeFault>) -> Result<T, Self> {
        result.map_err(|cause| Self { path: path.into(), cause })
    }
}

/// Returns the path of the volume's file, if an argument names a volume.
#[must_use]
pub fn path(argument: &OsStr) -> Option<PathBuf> {
    let path = argument.as_bytes().strip_prefix(SCHEME)?;
    Some(OsStr::from_bytes(path).into())
}

/// Reads the description of a volume.
///
/// # Errors
/// [`VolumeError`], without any password.
pub async fn load(path: &Path) -> Result<Description, VolumeError> {
    let file = path.to_owned();
    // The file may be a pipe, so reading may block.
    let text = spawn_blocking(move || std::fs::read_to_string(file)).await;
    let text = text.map_err(io::Error::from).flatten().map_err(VolumeFault::from);
    let parsed = text.and_then(|text| Ok(Description::parse(&text)?));
    VolumeError::of(path, parsed)
}

/// Opens the volume that a file describes.
///
/// # Errors
/// [`VolumeError`].
pub async fn open(
    path: &Path,
    description: &Description,
    initiator: &Initiator,
) -> Result<Volume<Disk>, VolumeError> {
    let opened = description.open(initiator).await.map_err(VolumeFault::from);
    VolumeError::of(path, opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_be_told_from_a_volume() {
        assert_eq!(path(OsStr::new("volume:/etc/one.toml")), Some("/etc/one.toml".into()));
        assert_eq!(path(OsStr::new("./volume:one")), None);
        assert_eq!(path(OsStr::new("volume")), None);
    }

    #[tokio::test]
    async fn what_is_no_description_is_told_with_its_path() {
        let error = load(Path::new("/nowhere/one.toml")).await.unwrap_err();
        assert_eq!(error.kind(), Kind::System);
        let message = error.to_string();
        assert!(message.starts_with("volume /nowhere/one.toml: "), "{message}");
        assert!(message.ends_with("; check the path"), "{message}");
        let file = std::env::temp_dir().join(format!("volume-of-common-{}", std::process::id()));
        std::fs::write(&file, "version = 1").unwrap();
        let error = load(&file).await.unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(error.kind(), Kind::Caller);
        assert!(error.to_string().contains("chunk is missing"), "{error}");
    }
}
