//! What the destination of a copy may hold, and what the copy may say of it.

use bytes::Bytes;
use iscsi_copy::RangeSet;

use super::content::index;
use super::in_use::InUse;
use crate::world::World;

/// Knows what is copied, and what the destination held before.
#[derive(Debug)]
pub(crate) struct Judge {
    source: Bytes,
    /// What of that is another thing by now, if somebody writes to it.
    in_use: Option<InUse>,
    /// What all of the destination held, as a read has seen it, and as a loss of power would have left it.
    before: [Bytes; 2],
    /// What all of it holds after the copy.
    after: Bytes,
}

impl Judge {
    /// For a copy of these bytes to the disk as it is now.
    pub(crate) fn new(source: Bytes, in_use: Option<InUse>, world: &World) -> Self {
        let disk = world.lun.disk();
        let before = [disk.read(0, usize::MAX), disk.read_durable(0, usize::MAX)];
        let mut after = before[0].to_vec();
        let len = source.len().min(after.len());
        after[..len].copy_from_slice(&source[..len]);
        Self { source, in_use, before, after: after.into() }
    }

    /// The bytes that are copied.
    pub(crate) const fn source(&self) -> &Bytes {
        &self.source
    }

    /// Whether the destination read as zeros.
    pub(crate) fn was_blank(&self) -> bool {
        self.before.iter().flatten().all(|byte| *byte == 0)
    }

    /// All of the source.
    pub(crate) fn all(&self) -> RangeSet {
        (0..self.source.len() as u64).into()
    }

    /// Whether no loss of power undoes what is said to be done.
    ///
    /// # Errors
    /// Where one would.
    pub(crate) fn claims(&self, world: &World, flushed: &RangeSet) -> Result<(), String> {
        let len = self.source.len() as u64;
        if let Some(range) = flushed.iter().next_back().filter(|range| range.end > len) {
            return Err(format!("{range:x?} is said to be done of {len:#x} bytes"));
        }
        let mut flushed = flushed.overlap(&(0..there(world)));
        // What is not told yet nobody can know.
        let dirty = self.in_use.as_ref().map(InUse::dirty).unwrap_or_default();
        dirty.iter().for_each(|range| flushed.remove(&range));
        for range in flushed.iter() {
            let wanted = match &self.in_use {
                Some(in_use) => in_use.read(&range),
                None => self.source.slice(index(&range)),
            };
            let durable = world.lun.disk().read_durable(range.start, wanted.len());
            // The common case first.
            if durable.starts_with(&wanted) {
                continue;
            }
            if let Some(at) = durable.iter().zip(&wanted).position(|(is, wanted)| is != wanted) {
                let at = range.start + at as u64;
                return Err(format!(
                    "byte {at:#x} is said to be done, and a loss of power undoes it"
                ));
            }
        }
        Ok(())
    }

    /// Whether each block is as it was, or as it shall be.
    ///
    /// # Errors
    /// Which one is not.
    pub(crate) fn image(&self, world: &World) -> Result<(), String> {
        if self.in_use.is_some() {
            // Each block may be as it was at any time.
            return Ok(());
        }
        let disk = world.lun.disk();
        let (block, len) = (disk.block_size() as usize, index(&(0..there(world))).end);
        for image in [disk.read(0, len), disk.read_durable(0, len)] {
            for (at, is) in (0..len).step_by(block).zip(image.chunks(block)) {
                let may_be = [&self.before[0], &self.before[1], &self.after];
                if !may_be.iter().any(|of| of.get(at..at + is.len()) == Some(is)) {
                    return Err(format!("block {:#x} holds what nobody has copied", at / block));
                }
            }
        }
        Ok(())
    }
}

/// The bytes of the destination that were there all the time.
fn there(world: &World) -> u64 {
    world.lun.min_blocks() * u64::from(world.lun.disk().block_size())
}
