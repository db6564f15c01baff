//! Loads and stores the digests of earlier copies, which describe the data that the destination has already.

use std::io;
use std::path::Path;

use iscsi_copy::{DigestFile, Digests, Identity};
use iscsi_examples_common::program::ProgramError;
use tokio::task::spawn_blocking;

use crate::end::End;
use crate::ends::Ends;
use crate::error::Error;

/// Bytes of a block with one digest. If one byte has changed, the whole block is sent. Each block takes a line
/// of the digest file.
const BLOCK: u64 = 1 << 20;

/// Opens the digest file of earlier copies. Returns `None` without a path.
pub(super) async fn open(path: Option<&Path>, ends: &Ends) -> Result<Option<DigestFile>, Error> {
    let Some(path) = path else { return Ok(None) };
    let destination = identity(ends)?;
    let source = match &ends.source {
        // The digest file contains the identity of the source only as a note. The name of a stream is enough.
        End::Stream(stream) => Identity::new(&stream.to_string(), 0),
        End::Export(export) => Identity::new(export.name(), 0),
        End::File(_) | End::Unit(_) | End::Volume(_) => ends.source_identity()?,
    };
    let opened = path.to_owned();
    let opening =
        spawn_blocking(move || DigestFile::open(opened, &source, &destination, BLOCK)).await;
    opening.map_err(io::Error::from).flatten().map(Some).map_err(|cause| failed(path, cause))
}

/// Returns the identity of the destination, which the digests refer to.
pub(super) fn identity(ends: &Ends) -> Result<Identity, Error> {
    if ends.destination.is_stream() {
        return Err(ProgramError::usage(
            "what a stream got is gone; leave --digests out, or copy to a file or a unit",
        )
        .into());
    }
    ends.destination_identity()
}

/// Removes all digests from the file, after the destination was found to differ from them.
pub(super) async fn forget(file: &DigestFile) -> Result<(), Error> {
    let (file, path) = (file.clone(), file.path().to_owned());
    let forgotten = spawn_blocking(move || file.forget()).await;
    forgotten.map_err(io::Error::from).flatten().map_err(|cause| failed(&path, cause))
}

/// Loads the digests of the destination.
pub(super) async fn load(path: &Path, ends: &Ends) -> Result<Digests, Error> {
    let destination = identity(ends)?;
    let loaded = path.to_owned();
    let loading = spawn_blocking(move || {
        Digests::load(loaded, &destination)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    });
    loading.await.map_err(io::Error::from).flatten().map_err(|cause| failed(path, cause))
}

pub(super) fn failed(path: &Path, cause: io::Error) -> Error {
    Error::Digests { name: path.to_string_lossy().into(), cause }
}
