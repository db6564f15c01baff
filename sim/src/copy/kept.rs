//! Checkpoints in the memory of a host. They outlive its processes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_copy::IoFuture;
use iscsi_copy::{Checkpoint, CheckpointError, CheckpointStore, Identity, RangeSet};
use tokio::time::sleep;

use super::watch::Watch;
use crate::rng::Rng;

/// Percentage of checkpoints that cannot be saved.
const FAILURES: u64 = 5;
/// Longest duration of saving a checkpoint, milliseconds.
const MAX_SAVING: u64 = 2000;

/// The storage of one checkpoint. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Texts>>);

#[derive(Debug, Default)]
struct Texts {
    kept: Option<String>,
    /// The next checkpoint, while it is being saved.
    new: Option<String>,
}

impl Kept {
    /// Returns the ranges that the checkpoint of this source and destination lists; `None` without a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint is damaged, or belongs to another source or destination.
    pub(crate) fn load(
        &self,
        source: &Identity,
        destination: &Identity,
    ) -> Result<Option<RangeSet>, CheckpointError> {
        let Some(text) = self.texts().kept.clone() else { return Ok(None) };
        let checkpoint: Checkpoint = text.parse()?;
        checkpoint.check(source, destination)?;
        Ok(Some(checkpoint.flushed))
    }

    /// Removes the checkpoint.
    pub(crate) fn remove(&self) {
        *self.texts() = Texts::default();
    }

    /// Kills the process. The checkpoint that it was saving is stored entirely, in part or not at all.
    pub(crate) fn crash(&self, rng: &mut Rng) {
        let mut texts = self.texts();
        let Some(new) = texts.new.take() else { return };
        match rng.within(0..4) {
            0 | 1 => {}
            2 => texts.kept = Some(new),
            _ => texts.kept = Some(new[..rng.index(0..new.len())].to_owned()),
        }
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores the checkpoints of one run, and checks what each claims.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) kept: Kept,
    pub(crate) watch: Arc<Watch>,
    pub(crate) source: Identity,
    pub(crate) destination: Identity,
    pub(crate) rng: Mutex<Rng>,
}

impl CheckpointStore for Store {
    fn keep(&self, flushed: RangeSet, unreadable: RangeSet, total: u64) -> IoFuture<'_, ()> {
        let (fails, lasts) = {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            (rng.percent(FAILURES), rng.any_scale(MAX_SAVING))
        };
        Box::pin(async move {
            {
                let mut world = self.watch.shared.lock();
                world.trace.record("checkpoint", &[flushed.bytes(), total]);
                if let Err(why) = self.watch.claims(&world, &flushed) {
                    world.accuse(format!("a checkpoint: {why}"));
                }
            }
            let (source, destination) = (self.source.clone(), self.destination.clone());
            let (left, sessions) = (None, Vec::new());
            let checkpoint =
                Checkpoint { source, destination, total, flushed, unreadable, left, sessions };
            let text = checkpoint.to_string();
            self.kept.texts().new = Some(text);
            sleep(lasts).await;
            let mut texts = self.kept.texts();
            let new = texts.new.take();
            if fails {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            texts.kept = new;
            Ok(())
        })
    }
}
