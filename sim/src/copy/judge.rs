//! Judges the destination of a copy: its data, and what the copy claims about it.

use bytes::Bytes;
use iscsi_copy::RangeSet;

use super::content::index;
use super::in_use::InUse;
use crate::world::World;

/// Compares the destination with the source and with the data that the destination had before.
#[derive(Debug)]
pub(crate) struct Judge {
    source: Bytes,
    /// Current data of the source, if it is written to.
    in_use: Option<InUse>,
    /// Data of the whole destination before the copy: as a read saw it, and as a loss of power would have
    /// left it.
    before: [Bytes; 2],
    /// Data of the whole destination after the copy.
    after: Bytes,
}

impl Judge {
    /// Makes the judge of a copy of `source` to the disk in its current state.
    pub(crate) fn new(source: Bytes, in_use: Option<InUse>, world: &World) -> Self {
        let disk = world.lun.disk();
        let before = [disk.read(0, usize::MAX), disk.read_durable(0, usize::MAX)];
        let mut after = before[0].to_vec();
        let len = source.len().min(after.len());
        after[..len].copy_from_slice(&source[..len]);
        Self { source, in_use, before, after: after.into() }
    }

    /// Returns the bytes that are copied.
    pub(crate) const fn source(&self) -> &Bytes {
        &self.source
    }

    /// Returns whether the destination reads as zeros before the copy.
    pub(crate) fn was_blank(&self) -> bool {
        self.before.iter().flatten().all(|byte| *byte == 0)
    }

    /// Returns the range of the whole source.
    pub(crate) fn all(&self) -> RangeSet {
        (0..self.source.len() as u64).into()
    }

    /// Checks that a loss of power would undo nothing in the ranges `flushed`.
    ///
    /// # Errors
    /// The first place whose data would be lost.
    pub(crate) fn claims(&self, world: &World, flushed: &RangeSet) -> Result<(), String> {
        let len = self.source.len() as u64;
        if let Some(range) = flushed.iter().next_back().filter(|range| range.end > len) {
            return Err(format!("{range:x?} is said to be done of {len:#x} bytes"));
        }
        let mut flushed = flushed.overlap(&(0..there(world)));
        // The copy cannot know of changes that are not reported yet, so their ranges are not compared.
        let dirty = self.in_use.as_ref().map(InUse::dirty).unwrap_or_default();
        dirty.iter().for_each(|range| flushed.remove(&range));
        for range in flushed.iter() {
            let wanted = match &self.in_use {
                Some(in_use) => in_use.read(&range),
                None => self.source.slice(index(&range)),
            };
            let durable = world.lun.disk().read_durable(range.start, wanted.len());
            // Fast path: usually all bytes of the range are equal.
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

    /// Checks that each block of the destination has its old or its new data.
    ///
    /// # Errors
    /// The first block that has other data.
    pub(crate) fn image(&self, world: &World) -> Result<(), String> {
        if self.in_use.is_some() {
            // A source in use is written to during the copy, and each of its blocks may have been read before
            // or after any of these writes. So the data of the blocks is not checked here.
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

/// Returns the smallest size that the destination has had, bytes. Data beyond it may be lost.
fn there(world: &World) -> u64 {
    world.lun.min_blocks() * u64::from(world.lun.disk().block_size())
}
