//! Checks whether digests and checkpoints are true.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_copy::{Checkpoint, Identity, RangeSet};

use super::files::Files;
use super::reader::{self, Blocks};
use crate::copy::content::index;
use crate::copy::judge::Judge;
use crate::world::{Shared, World};

pub(crate) const DIGESTS: &str = "digests";
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Checks the digests and checkpoints that a process keeps in files. Neither a killed process nor a crash of
/// host or target may leave a false statement in them.
#[derive(Debug)]
pub(crate) struct Vouching {
    shared: Arc<Shared>,
    files: Files,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Ranges of the destination that other hosts have written.
    by_others: RangeSet,
    /// Whether a copy has reported that writes of an earlier run may still arrive. Then the statements are
    /// not checked.
    is_unproven: bool,
    /// The current image.
    source: Option<(Identity, Arc<Judge>)>,
    /// The statements of the digest file (current, and after a crash), and the number of changes of files
    /// after which they were read.
    statements: Option<(u64, [Blocks; 2])>,
}

impl Vouching {
    pub(crate) fn new(shared: &Arc<Shared>, files: &Files) -> Self {
        let (shared, files) = (Arc::clone(shared), files.clone());
        Self { shared, files, state: Mutex::default() }
    }

    /// Forgets the previous command line. No request of its processes is in flight any more.
    pub(crate) fn begin_anew(&self) {
        *self.state() = State::default();
    }

    /// Sets the image that is copied from now on.
    pub(crate) fn copies(&self, source: Identity, judge: &Arc<Judge>) {
        self.state().source = Some((source, Arc::clone(judge)));
    }

    /// Notes that another host has written to the destination.
    pub(crate) fn others_have_written(&self, range: Range<u64>) {
        self.state().by_others.insert(range);
    }

    pub(crate) fn by_others(&self) -> RangeSet {
        self.state().by_others.clone()
    }

    /// Notes that all digests were dropped. Later digests come from later writes.
    pub(crate) fn has_forgotten(&self) {
        self.state().by_others = RangeSet::new();
    }

    /// Notes that a copy has reported sessions of earlier runs that may not have ended. The report is ignored
    /// if no request is in flight.
    pub(crate) fn not_ended(&self, world: &World) {
        self.state().is_unproven |= world.has_orphans();
    }

    pub(crate) fn is_unproven(&self) -> bool {
        self.state().is_unproven
    }

    /// Checks the digest file and the checkpoint, and reports a false statement as a violation.
    pub(crate) fn judge(&self) {
        let mut world = self.shared.lock();
        if let Err(why) = self.check(&world) {
            world.accuse(why);
        }
    }

    /// Checks every statement of the digest file and the checkpoint.
    ///
    /// # Errors
    /// The first false statement.
    pub(crate) fn check(&self, world: &World) -> Result<(), String> {
        let mut state = self.state();
        let statements = self.statements(&mut state)?.clone();
        if state.is_unproven {
            return Ok(());
        }
        let [now, durable] = &statements;
        check_blocks(now, world, &state.by_others)?;
        if durable != now {
            check_blocks(durable, world, &state.by_others)?;
        }
        self.check_checkpoint(world, &state)
    }

    /// Checks that the medium of the destination holds the whole source, except where other hosts have written.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn is_all_there(&self, world: &World) -> Result<(), String> {
        let state = self.state();
        let Some((_, judge)) = state.source.as_ref().filter(|_| !state.is_unproven) else {
            return Ok(());
        };
        let mut all = judge.all();
        state.by_others.iter().for_each(|range| all.remove(&range));
        judge.claims(world, &all)
    }

    fn check_checkpoint(&self, world: &World, state: &State) -> Result<(), String> {
        let path = Path::new(CHECKPOINT);
        let Some((source, judge)) = &state.source else { return Ok(()) };
        for text in [self.files.text(path), self.files.durable_text(path)].into_iter().flatten() {
            let text = String::from_utf8_lossy(&text);
            let checkpoint: Checkpoint =
                text.parse().map_err(|error| format!("a checkpoint: {error}"))?;
            if checkpoint.source != *source {
                continue;
            }
            let mut flushed = checkpoint.flushed;
            state.by_others.iter().for_each(|range| flushed.remove(&range));
            judge.claims(world, &flushed).map_err(|why| format!("a checkpoint: {why}"))?;
        }
        Ok(())
    }

    /// Checks a write before it is sent: no digest may cover its range, since the process may be killed
    /// immediately afterwards.
    pub(crate) fn is_about_to_write(&self, world: &mut World, range: &Range<u64>) {
        let why = match self.statements(&mut self.state()) {
            Ok(statements)
                if statements
                    .iter()
                    .all(|statements| reader::overlapping(statements, range).next().is_none()) =>
            {
                return;
            }
            Ok(_) => format!("{range:x?} is written, and digests still say what was there"),
            Err(why) => why,
        };
        world.accuse(why);
    }

    /// Returns the statements of the digest file as it is, and as a crash of the host would leave it.
    fn statements<'a>(&self, state: &'a mut State) -> Result<&'a [Blocks; 2], String> {
        let (path, changes) = (PathBuf::from(DIGESTS), self.files.changes());
        let statements = match state.statements.take().filter(|(known, _)| *known == changes) {
            Some((_, statements)) => statements,
            None => {
                let texts = [self.files.text(&path), self.files.durable_text(&path)];
                let [now, durable] = texts.map(|text| {
                    text.map_or_else(|| Ok(Blocks::new()), |text| reader::blocks(&text))
                });
                let damaged = |why| format!("the file of digests is damaged: {why}");
                [now.map_err(damaged)?, durable.map_err(damaged)?]
            }
        };
        Ok(&state.statements.insert((changes, statements)).1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks each statement against the medium, except where other hosts have written.
fn check_blocks(blocks: &Blocks, world: &World, by_others: &RangeSet) -> Result<(), String> {
    let disk = world.lun.disk();
    let medium = disk.read_durable(0, usize::MAX);
    for (start, (end, digest)) in blocks {
        let range = *start..*end;
        if !by_others.overlap(&range).is_empty() {
            continue;
        }
        let is_so = medium.get(index(&range)).is_some_and(|is| match digest {
            None => is.iter().all(|byte| *byte == 0),
            Some(digest) => blake3::hash(is) == *digest,
        });
        if !is_so {
            return Err(format!("digests say of {range:x?} what is not on the medium"));
        }
    }
    Ok(())
}
