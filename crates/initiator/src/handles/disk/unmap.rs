//! Deallocates blocks (SBC-3 §4.7.3.4, UNMAP).

use std::ops::Range;
use std::sync::Arc;

use iscsi_pdu::scsi::UnmapList;
use iscsi_pdu::scsi::vpd::BlockLimits;

use super::Disk;
use crate::boxed::{BoxFuture, boxed};
use crate::error::{Error, UnitCause};
use crate::handles::disk::join::try_join_all;
use crate::state::range_locks::RangeGuard;
use crate::unit::transfer::Transfer;

impl Disk {
    /// Deallocates the whole blocks of a range (UNMAP). Bytes of blocks that are only partly in the
    /// range stay as they are. [`Capacity::unmapped_reads_zeros`](crate::Capacity) says what
    /// deallocated blocks read as.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the unit has no UNMAP,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the range does not lie on the disk,
    /// [`WriteProtected`](crate::ErrorKind::WriteProtected), [`Unsettled`](crate::ErrorKind::Unsettled) if a lost
    /// session was writing to the range, or as [`LogicalUnit::unmap`](crate::LogicalUnit::unmap).
    #[doc(alias = "trim")]
    pub async fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        if !self.has_unmap() {
            return Err(UnitCause::Unsupported("UNMAP").into());
        }
        let Some(blocks) = self.blocks_within(offset, len) else { return Ok(()) };
        let extent = Arc::new(self.take(blocks.clone()).await?);
        let unmap = || self.unmap_blocks(&blocks, &extent);
        self.unit.losses().until_not_lost(unmap).await
    }

    /// Returns whether the unit supports UNMAP.
    pub(super) fn has_unmap(&self) -> bool {
        let takes_any = self.profile.limits.maximum_unmap_lba_count > 0;
        takes_any && self.profile.provisioning.is_some_and(|page| page.unmap)
    }

    /// Returns the granules in which the unit deallocates blocks.
    pub(super) fn granules(&self) -> Granules {
        Granules::of(&self.profile.limits)
    }

    /// Sends UNMAP for whole blocks of a range that is locked.
    pub(super) fn unmap_blocks<'a>(
        &'a self,
        blocks: &'a Range<u64>,
        extent: &'a Arc<RangeGuard>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        boxed(async move {
            let runs = self.granules().runs(self.lbas(blocks)).map(|(lba, blocks)| async move {
                let mut list = UnmapList::new();
                let why = |why| Error::from(UnitCause::Format { command: "UNMAP", why });
                list.push(lba, blocks).map_err(why)?;
                let transfer = Transfer::unmap(&list);
                self.modify(transfer.within(extent)).await
            });
            try_join_all(runs).await.map(drop)
        })
    }
}

/// The granules in which a unit deallocates blocks (VPD page B0): it may ignore an UNMAP for part of a granule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granules {
    /// OPTIMAL UNMAP GRANULARITY, in blocks, at least 1.
    pub(super) len: u32,
    /// First block of the first whole granule; less than `len`.
    alignment: u32,
    /// Most blocks of one UNMAP, at least 1.
    max_run: u32,
}

impl Granules {
    fn of(limits: &BlockLimits) -> Self {
        let len = limits.optimal_unmap_granularity.unwrap_or(1).max(1);
        let alignment = limits.unmap_granularity_alignment.unwrap_or(0) % len;
        Self { len, alignment, max_run: limits.maximum_unmap_lba_count.max(1) }
    }

    /// Returns whether these blocks contain a whole granule that one UNMAP can name.
    pub(super) fn has_any_within(self, lbas: &Range<u64>) -> bool {
        let first = lbas.start + u64::from(self.distance_to_next(lbas.start));
        self.max_run >= self.len && first.saturating_add(self.len.into()) <= lbas.end
    }

    /// Divides a range of blocks into runs, one for each UNMAP, at the bounds of granules where possible.
    fn runs(self, lbas: Range<u64>) -> impl Iterator<Item = (u64, u32)> {
        let mut lba = lbas.start;
        std::iter::from_fn(move || {
            let left = lbas.end.saturating_sub(lba);
            let most = u32::try_from(left).unwrap_or(u32::MAX).min(self.max_run);
            let past = self.distance_from_last(lba.saturating_add(most.into()));
            // The last run ends with the range. Other runs are shortened to end at a bound of a granule, if they
            // contain one.
            let is_cut = u64::from(most) < left && past < most;
            let count = if is_cut { most - past } else { most };
            let run = (lba, count);
            lba += u64::from(count);
            (count > 0).then_some(run)
        })
    }

    /// Returns the number of blocks from the first block of a granule to a block in it.
    fn distance_from_last(self, lba: u64) -> u32 {
        let len = u64::from(self.len);
        let within = (lba % len + len - u64::from(self.alignment)) % len;
        u32::try_from(within).unwrap_or(0)
    }

    /// Returns the number of blocks from a block to the first granule that does not begin before it.
    fn distance_to_next(self, lba: u64) -> u32 {
        (self.len - self.distance_from_last(lba)) % self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granules(len: u32, alignment: u32, max_run: u32) -> Granules {
        let mut limits = BlockLimits::default();
        limits.optimal_unmap_granularity = Some(len);
        limits.unmap_granularity_alignment = Some(alignment);
        limits.maximum_unmap_lba_count = max_run;
        Granules::of(&limits)
    }

    fn runs(granules: Granules, lbas: Range<u64>) -> Vec<(u64, u32)> {
        granules.runs(lbas).collect()
    }

    #[test]
    fn runs_are_cut_between_granules() {
        assert_eq!(runs(granules(1, 0, 3), 5..12), [(5, 3), (8, 3), (11, 1)]);
        assert_eq!(runs(granules(8, 0, 20), 5..60), [(5, 19), (24, 16), (40, 20)]);
        // Granules begin at 3, 11, 19: the alignment counts modulo the length.
        assert_eq!(runs(granules(8, 19, 10), 0..30), [(0, 3), (3, 8), (11, 8), (19, 8), (27, 3)]);
        // No UNMAP can name a whole granule.
        assert_eq!(runs(granules(8, 0, 5), 6..20), [(6, 2), (8, 5), (13, 3), (16, 4)]);
        assert_eq!(runs(granules(8, 0, 20), 5..5), []);
        let whole: u64 = runs(granules(1 << 20, 7, u32::MAX), 0..1 << 33)
            .iter()
            .map(|(_, blocks)| u64::from(*blocks))
            .sum();
        assert_eq!(whole, 1 << 33);
    }

    #[test]
    fn a_range_has_a_granule_only_as_a_whole() {
        let granules_of_8 = granules(8, 3, 100);
        for (lbas, has_any) in [
            (3..11, true),
            (2..11, true),
            (4..18, false),
            (4..19, true),
            (3..10, false),
            (3..3, false),
        ] {
            assert_eq!(granules_of_8.has_any_within(&lbas), has_any, "{lbas:?}");
        }
        assert!(!granules(8, 0, 7).has_any_within(&(0..64)));
        assert!(granules(1, 0, 7).has_any_within(&(5..6)));
    }
}
