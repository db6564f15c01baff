//! What the destination has already, by what an earlier copy has kept.

use std::io;
use std::path::Path;

use iscsi_copy::{DigestFile, Digests, Identity};
use tokio::task::spawn_blocking;

use crate::end::End;
use crate::ends::Ends;
use crate::error::Error;

/// Bytes of a block. One changed byte costs so many; and so many cost a line of text.
const BLOCK: u64 = 1 << 20;

/// Reads what earlier copies have kept. `None` where nothing is to be kept.
pub(super) async fn open(path: Option<&Path>, ends: &Ends) -> Result<Option<DigestFile>, Error> {
    let Some(path) = path else { return Ok(None) };
    let destination = identity(ends)?;
    let source = match &ends.source {
        // It is only noted.
        End::Stream(stream) => Identity::new(&stream.to_string(), 0),
        End::Export(export) => Identity::new(export.name(), 0),
        End::File(_) | End::Unit(_) | End::Volume(_) => ends.source_identity()?,
    };
    let opened = path.to_owned();
    let opening =
        spawn_blocking(move || DigestFile::open(opened, &source, &destination, BLOCK)).await;
    opening.map_err(io::Error::from).flatten().map(Some).map_err(|cause| failed(path, cause))
}

/// What makes the destination the one that digests are of.
pub(super) fn identity(ends: &Ends) -> Result<Identity, Error> {
    if ends.destination.is_stream() {
        return Err(Error::Usage(
            "what a stream got is gone; leave --digests out, or copy to a file or a unit",
        ));
    }
    ends.destination_identity()
}

/// Forgets what was known, where it has turned out that it is not so.
pub(super) async fn forget(file: &DigestFile) -> Result<(), Error> {
    let (file, path) = (file.clone(), file.path().to_owned());
    let forgotten = spawn_blocking(move || file.forget()).await;
    forgotten.map_err(io::Error::from).flatten().map_err(|cause| failed(&path, cause))
}

/// What a file says of the destination.
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
