//! The files that a process keeps, digests and a checkpoint, opened before it copies.

use std::io;
use std::path::Path;
use std::sync::Arc;

use iscsi_copy::simulation::HostFiles;
use iscsi_copy::{CheckpointError, CheckpointFile, DigestFile, Identity, RangeSet};
use tokio::sync::oneshot;

use super::RepeatedCopy;
use super::process::Process;
use super::vouching::{CHECKPOINT, DIGESTS};

/// The open digest file and checkpoint of a process.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) digests: DigestFile,
    pub(super) checkpoint: Option<CheckpointFile>,
    /// The ranges that the checkpoint records as flushed, if there was one.
    pub(super) done: Option<RangeSet>,
}

impl RepeatedCopy<'_> {
    /// Opens the digest file and the checkpoint of a process before it copies. A checkpoint of another source
    /// is removed, as the user would do.
    pub(super) fn keep(
        &self,
        process: Process,
        source: Identity,
    ) -> impl Future<Output = io::Result<Keeping>> + use<> {
        let destination = self.copies.destination();
        let (files, block_size) = (self.files.clone(), self.line.block_size);
        let (has_checkpoint, total) = (self.line.has_checkpoint, self.image.bytes.len() as u64);
        async move {
            let destination = destination.map_err(io::Error::other)?;
            let on: Arc<dyn HostFiles> = Arc::new(process.clone());
            let (mut checkpoint, mut done) = (None, None);
            if has_checkpoint {
                let (source, destination) = (source.clone(), destination.clone());
                let file = CheckpointFile::new_on(Arc::clone(&on), CHECKPOINT, source, destination);
                let again = file.clone();
                done = work(&process, move || match again.load() {
                    Err(error) if is_of_another_run(&error) => {
                        files.remove(Path::new(CHECKPOINT));
                        again.load()
                    }
                    loaded => loaded,
                })
                .await?;
                let (again, flushed) = (file.clone(), done.clone().unwrap_or_default());
                work(&process, move || again.store(flushed, RangeSet::new(), total)).await?;
                checkpoint = Some(file);
            }
            let opening =
                move || DigestFile::open_on(on, DIGESTS, &source, &destination, block_size);
            let digests = work(&process, opening).await?;
            Ok(Keeping { digests, checkpoint, done })
        }
    }
}

/// Runs `work` on the threads of a process, so that it stops when the process is killed.
pub(super) async fn work<T: Send + 'static>(
    process: &Process,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, is_done) = oneshot::channel();
    process.run(Box::new(move || _ = done.send(work()))).await?;
    is_done.await.map_err(io::Error::other)?
}

fn is_of_another_run(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(CheckpointError::OtherSource { .. }))
}
