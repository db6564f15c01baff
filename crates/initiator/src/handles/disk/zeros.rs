//! Writes zeros to a disk, without sending them if the unit can make them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_multipath::{Blocks, unmapped_reads_zeros};
use iscsi_pdu::scsi::{Cdb, WriteSameFlags};
use iscsi_session::Payload;

use super::Disk;
use super::blocks::{distance, runs};
use crate::boxed::{BoxFuture, boxed};
use crate::error::{Cause, Error, UnitCause};
use crate::handles::disk::join::try_join_all;
use crate::state::range_locks::RangeGuard;
use crate::unit::execute::is_refused;
use crate::unit::transfer::Transfer;

/// Most blocks of one WRITE SAME if the unit reports no limit, so that its execution does not take too long.
const WRITE_SAME_BLOCKS: u64 = 1 << 20;

/// A function that makes whole blocks zero, in a range that is locked.
type ZeroBlocks =
    for<'a> fn(&'a Disk, Range<u64>, &'a Arc<RangeGuard>) -> BoxFuture<'a, Result<(), Error>>;

/// Way in which WRITE SAME makes zeros.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Zeroing {
    /// WRITE SAME deallocates the blocks (LBPWS).
    Unmap,
    /// WRITE SAME (10) deallocates the blocks, and WRITE SAME (16) does not (LBPWS10).
    Unmap10,
    /// WRITE SAME writes zeros.
    Write,
}

impl Disk {
    /// Writes zeros to a range. They are not sent if the unit can make them: by WRITE SAME, or, on
    /// a thin unit whose deallocated blocks read as zeros, by deallocating the blocks (WRITE SAME
    /// with UNMAP, or UNMAP).
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    #[doc(alias = "WRITE SAME")]
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.write_zeroes_by(Self::zero_blocks, offset, len).await
    }

    /// Writes zeros to a range, and keeps its blocks allocated. The zeros are not sent if the unit
    /// can make them (WRITE SAME without UNMAP). A thin unit allocates the blocks, so that a later
    /// write there needs no space.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub async fn write_allocated_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.write_zeroes_by(Self::write_zero_blocks, offset, len).await
    }

    /// Writes zeros to a range; `zero_blocks` makes its whole blocks zero.
    fn write_zeroes_by(
        &self,
        zero_blocks: ZeroBlocks,
        offset: u64,
        len: u64,
    ) -> BoxFuture<'_, Result<(), Error>> {
        boxed(async move {
            self.check_writable()?;
            let Some(around) = self.blocks_around(offset, len)? else { return Ok(()) };
            let extent = Arc::new(self.take(around).await?);
            let zero = || async {
                match self.write_zero_edges(offset, len, &extent).await? {
                    Some(blocks) => zero_blocks(self, blocks, &extent).await,
                    None => Ok(()),
                }
            };
            self.unit.losses().until_not_lost(zero).await
        })
    }

    /// Writes zeros over the parts of a range that are not whole blocks. Returns the whole blocks, if there are
    /// any.
    async fn write_zero_edges(
        &self,
        offset: u64,
        len: u64,
        extent: &Arc<RangeGuard>,
    ) -> Result<Option<Range<u64>>, Error> {
        let end = offset + len;
        let Some(blocks) = self.blocks_within(offset, len) else {
            self.write_zero_edge(offset..end, extent).await?;
            return Ok(None);
        };
        self.write_zero_edge(offset..blocks.start, extent).await?;
        self.write_zero_edge(blocks.end..end, extent).await?;
        Ok(Some(blocks))
    }

    /// Returns whether the unit reports that it can make zeros by itself.
    pub(super) fn has_fast_zeroes(&self) -> bool {
        let deallocates = self.deallocating().is_some() || self.may_unmap_zeroes();
        deallocates || self.profile.limits.maximum_write_same_length.is_some()
    }

    /// Makes whole blocks zero, and lets a thin unit deallocate them, if it can.
    fn zero_blocks<'a>(
        &'a self,
        blocks: Range<u64>,
        extent: &'a Arc<RangeGuard>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        boxed(async move {
            if let Some(way) = self.deallocating()
                && self.write_same_zeroes(&blocks, way, extent).await?
            {
                return Ok(());
            }
            let left = self.unmap_zeroes(blocks, extent).await?;
            let left = left.into_iter().map(|blocks| self.write_zero_blocks(blocks, extent));
            try_join_all(left).await.map(drop)
        })
    }

    /// Returns how WRITE SAME deallocates blocks, if deallocated blocks read as zeros.
    fn deallocating(&self) -> Option<Zeroing> {
        let page = self.profile.provisioning.filter(|_| unmapped_reads_zeros(&self.profile))?;
        let long = page.write_same_16.then_some(Zeroing::Unmap);
        long.or_else(|| page.write_same_10.then_some(Zeroing::Unmap10))
    }

    /// Returns whether the unit reports that UNMAP can make zeros.
    fn may_unmap_zeroes(&self) -> bool {
        self.has_unmap() && unmapped_reads_zeros(&self.profile)
    }

    /// Makes zeros by UNMAP, and returns the blocks that may not be zero after that.
    ///
    /// A unit need not execute UNMAP, and may keep the blocks of a granule that the command names only in part
    /// (SBC-3 §4.7.3.4). So only blocks that the unit reports as deallocated afterwards count as zero. Checking
    /// by reading the blocks would cost as much as sending zeros. So a unit that does not report the states is
    /// not queried again, and receives no UNMAP.
    ///
    /// UNMAP names all blocks of the range, even of granules that are only partly in it. If blocks of such a
    /// granule were deallocated before, they need no write, and a reset that undoes their deallocation counts as
    /// a loss of this UNMAP.
    async fn unmap_zeroes(
        &self,
        blocks: Range<u64>,
        extent: &Arc<RangeGuard>,
    ) -> Result<Vec<Range<u64>>, Error> {
        let lbas = self.lbas(&blocks);
        let is_possible = self.may_unmap_zeroes() && self.reports_block_states();
        if !is_possible || !self.granules().has_any_within(&lbas) {
            return Ok(vec![blocks]);
        }
        match self.unmap_blocks(&blocks, extent).await {
            Err(error) if is_refused(&error) => return Ok(vec![blocks]),
            result => result?,
        }
        let Some(states) = self.states(lbas.clone()).await? else { return Ok(vec![blocks]) };
        let block_size = u64::from(self.block_size());
        let told = states.last().map_or(lbas.start, |(lbas, _)| lbas.end);
        let left = states.into_iter().filter(|(_, state)| !state.reads_zeros());
        // The state of the blocks that the unit has not reported is unknown, so they are returned too.
        let left = left.map(|(lbas, _)| lbas).chain((told < lbas.end).then_some(told..lbas.end));
        Ok(left.map(|lbas| lbas.start * block_size..lbas.end * block_size).collect())
    }

    /// Makes whole blocks zero, and keeps them allocated.
    fn write_zero_blocks<'a>(
        &'a self,
        blocks: Range<u64>,
        extent: &'a Arc<RangeGuard>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        boxed(async move {
            if self.write_same_zeroes(&blocks, Zeroing::Write, extent).await? {
                return Ok(());
            }
            let len = distance(blocks.start, blocks.end);
            let zeros = Bytes::from(vec![0; len.min(self.max_transfer)]);
            let step = zeros.len() as u64;
            let writes = (blocks.start..blocks.end).step_by(self.max_transfer).map(|offset| {
                let len = distance(offset, blocks.end.min(offset + step));
                let data = Payload::from(zeros.slice(..len));
                async move { self.write_blocks(offset, &data, extent).await }
            });
            try_join_all(writes).await.map(drop)
        })
    }

    /// Writes zeros over a range that lies within one block, or within two neighbouring blocks.
    async fn write_zero_edge(
        &self,
        range: Range<u64>,
        extent: &Arc<RangeGuard>,
    ) -> Result<(), Error> {
        let len = distance(range.start, range.end);
        let Some(blocks) = self.blocks_around(range.start, len as u64)? else { return Ok(()) };
        self.write_taken(&blocks, range.start, &vec![0; len].into(), extent).await
    }

    /// Returns the most blocks of one WRITE SAME.
    fn longest_write_same(&self, way: Zeroing) -> u64 {
        let most = self.profile.limits.maximum_write_same_length.unwrap_or(WRITE_SAME_BLOCKS);
        let long_form = Cdb::write_same_16(0, 0, WriteSameFlags::default()).operation_code();
        let is_short = way == Zeroing::Unmap10
            || !self.capacity.long_commands
            || self.unit.state().known().is_unknown_form(long_form);
        if is_short { most.min(Blocks::MAX.into()) } else { most }
    }

    /// Makes zeros by WRITE SAME; returns whether the unit does that.
    async fn write_same_zeroes(
        &self,
        blocks: &Range<u64>,
        way: Zeroing,
        extent: &Arc<RangeGuard>,
    ) -> Result<bool, Error> {
        let count = self.lba(blocks.end - blocks.start);
        loop {
            let most = self.longest_write_same(way).min(count);
            match self.write_same(blocks, way, most, extent).await {
                // The unit turned out to know only the shorter form, which can name fewer blocks.
                Err(error) if is_refused(&error) && self.longest_write_same(way) < most => {}
                Err(error) if is_refused(&error) => return Ok(false),
                // The status is GOOD, but it is uncertain what the unit did with the block of zeros, so the
                // caller sends the zeros.
                Err(error) if is_short(&error) => return Ok(false),
                result => return result.map(|()| true),
            }
        }
    }

    async fn write_same(
        &self,
        blocks: &Range<u64>,
        way: Zeroing,
        most: u64,
        extent: &Arc<RangeGuard>,
    ) -> Result<(), Error> {
        let block = Payload::from(vec![0; self.block_size() as usize]);
        let runs = runs(self.lbas(blocks), most).map(|(lba, blocks)| {
            let flags = WriteSameFlags { unmap: way != Zeroing::Write, ..Default::default() };
            let mut transfer = Transfer::write_same(lba, blocks, block.clone(), flags);
            if way == Zeroing::Unmap10 {
                transfer.shorten();
            }
            self.modify(transfer.within(extent))
        });
        try_join_all(runs).await.map(drop)
    }
}

/// Returns whether the unit returned GOOD, but took another number of bytes than the command had.
fn is_short(error: &Error) -> bool {
    matches!(error.cause(), Cause::Unit(UnitCause::Length { .. }))
}
