//! Zeros on a disk, without sending them where the unit can make them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use iscsi_pdu::scsi::{Cdb, WriteSameFlags};
use iscsi_session::Payload;

use super::{Disk, distance, runs};
use crate::error::Error;
use crate::handles::disk::join::try_join_all;
use crate::state::capacity::Capacity;
use crate::unit::execute::is_refused;
use crate::unit::transfer::Transfer;

/// The most blocks of one WRITE SAME if the unit gives no limit: its execution takes time.
const WRITE_SAME_BLOCKS: u64 = 1 << 20;

/// How WRITE SAME makes zeros.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Zeroing {
    /// By deallocating blocks (LBPWS).
    Unmap,
    /// The same where only WRITE SAME (10) does it (LBPWS10).
    Unmap10,
    /// By writing them.
    Write,
}

impl Disk {
    /// Writes zeros, without sending them where the unit knows WRITE SAME. A thin unit whose
    /// deallocated blocks read as zeros may give the blocks back.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub async fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        let end = offset + len;
        let Some(blocks) = self.blocks_within(offset, len) else {
            return self.write_zero_bytes(offset..end).await;
        };
        self.write_zero_bytes(offset..blocks.start).await?;
        self.write_zero_bytes(blocks.end..end).await?;
        let count = self.lba(blocks.end - blocks.start);
        for way in self.zeroings() {
            loop {
                let most = self.longest_write_same(way).min(count);
                match self.write_same_zeroes(&blocks, way, most).await {
                    // The shorter form, which was found out to be the only one, says less.
                    Err(error) if is_refused(&error) && self.longest_write_same(way) < most => {}
                    Err(error) if is_refused(&error) => break,
                    // Status GOOD, but what became of the block of zeros is in doubt.
                    Err(Error::Length { .. }) => break,
                    result => return result,
                }
            }
        }
        self.write_zero_bytes(blocks).await
    }

    /// Whether the unit says that it makes zeros by itself.
    pub(super) fn has_fast_zeroes(&self) -> bool {
        let deallocates = self.zeroings().next() != Some(Zeroing::Write);
        deallocates || self.profile.limits.maximum_write_same_length.is_some()
    }

    /// The ways to write zeros without sending them, the best first: so that a thin unit gives the
    /// blocks back, if they read as zeros then, or as data.
    fn zeroings(&self) -> impl Iterator<Item = Zeroing> {
        let page = self.profile.provisioning.filter(|_| self.profile.unmapped_reads_zeros());
        let long = page.is_some_and(|page| page.write_same_16).then_some(Zeroing::Unmap);
        let short = page.is_some_and(|page| page.write_same_10).then_some(Zeroing::Unmap10);
        long.or(short).into_iter().chain([Zeroing::Write])
    }

    /// The most blocks of one WRITE SAME.
    fn longest_write_same(&self, way: Zeroing) -> u64 {
        let most = self.profile.limits.maximum_write_same_length.unwrap_or(WRITE_SAME_BLOCKS);
        let long_form = Cdb::write_same_16(0, 0, WriteSameFlags::default()).operation_code();
        let is_short = way == Zeroing::Unmap10
            || !self.profile.capacity.long_commands
            || self.unit.state().unknown_forms.contains(long_form);
        if is_short { most.min(Capacity::MAX_BLOCKS.into()) } else { most }
    }

    async fn write_same_zeroes(
        &self,
        blocks: &Range<u64>,
        way: Zeroing,
        most: u64,
    ) -> Result<(), Error> {
        let extent = Arc::new(self.take(blocks.clone()).await?);
        let block = Payload::from(vec![0; self.block_size() as usize]);
        let runs = runs(self.lbas(blocks), most).map(|(lba, blocks)| {
            let flags = WriteSameFlags { unmap: way != Zeroing::Write, ..Default::default() };
            let mut transfer = Transfer::write_same(lba, blocks, block.clone(), flags);
            if way == Zeroing::Unmap10 {
                transfer.shorten();
            }
            self.modify(transfer.within(&extent))
        });
        try_join_all(runs).await.map(drop)
    }

    async fn write_zero_bytes(&self, range: Range<u64>) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let zeros = Bytes::from(vec![0; self.max_transfer]);
        let step = zeros.len() as u64;
        let writes = (range.start..range.end).step_by(self.max_transfer).map(|offset| {
            let len = distance(offset, range.end.min(offset + step));
            self.write_at(offset, zeros.slice(..len))
        });
        try_join_all(writes).await.map(drop)
    }
}
