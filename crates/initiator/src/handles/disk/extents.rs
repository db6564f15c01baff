//! Finds out which parts of a disk hold data (SBC-3 §5.3, GET LBA STATUS).
//!
//! A caller that skips a hole relies on the report, so only blocks that the unit explicitly reports as
//! deallocated are a hole. A response that contradicts itself does not count; the whole range is then reported
//! as data.

use std::ops::Range;

use iscsi_multipath::unmapped_reads_zeros;
use iscsi_pdu::scsi::{AdditionalSense, Cdb, LbaStatus, ProvisioningStatus};

use super::Disk;
use crate::boxed::{BoxFuture, boxed};
use crate::device::{Extent, ExtentState};
use crate::error::Error;
use crate::unit::execute::is_refused;
use crate::unit::transfer::Transfer;

/// Allocation length for 2047 runs of blocks, in bytes.
const ANSWER_LEN: u32 = 32 * 1024 - 8;
/// Allocation length for one run of blocks, in bytes.
const ONE_LEN: u32 = 24;
/// Most GET LBA STATUS commands of one call of [`Disk::states`], which also ends once it has
/// [`Extent::MAX_REPORTED`] runs.
const MAX_QUESTIONS: usize = 64;

/// Runs of blocks with their states, in order and without a gap.
pub(super) type States = Vec<(Range<u64>, ExtentState)>;

impl Disk {
    /// Returns what is known of the bytes of a range without reading them (GET LBA STATUS). The extents are in
    /// order, without a gap, from `offset` on; two neighbours differ in state. There is at least one extent
    /// unless the range is empty, and at most [`Extent::MAX_REPORTED`]. The extents may end before the range
    /// does: to continue, call this again from the [end](Extent::end) of the last one.
    ///
    /// A unit that is not thinly provisioned, does not know the command, or contradicts itself is reported as
    /// data throughout, and is not queried again. Deallocated blocks read as zeros only if the unit reports so
    /// (LBPRZ); otherwise they are [`ExtentState::Unknown`]. The result includes every write that had returned
    /// before this call. It may or may not include a concurrent write, or a write of another initiator.
    ///
    /// Each call sends one command, so that the caller decides whether the next one is worth its time: many
    /// units report one extent in each response.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the range does not lie on the disk, or as
    /// [`LogicalUnit::execute`](crate::LogicalUnit::execute).
    #[doc(alias("GET LBA STATUS", "SEEK_HOLE", "sparse"))]
    pub async fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>, Error> {
        self.query_extents(offset, len, ANSWER_LEN).await
    }

    /// Returns the first of the [`extents`](Self::extents) of a range, by a command with room for one extent
    /// only; `None` if the range is empty.
    ///
    /// # Errors
    /// As [`extents`](Self::extents).
    pub async fn first_extent(&self, offset: u64, len: u64) -> Result<Option<Extent>, Error> {
        Ok(self.query_extents(offset, len, ONE_LEN).await?.first().copied())
    }

    fn query_extents(
        &self,
        offset: u64,
        len: u64,
        answer_len: u32,
    ) -> BoxFuture<'_, Result<Vec<Extent>, Error>> {
        boxed(async move {
            self.check_range(offset, len)?;
            let end = offset + len;
            if len == 0 || !self.reports_block_states() {
                return Ok(Extent::all_data(offset, len));
            }
            let block_size = u64::from(self.block_size());
            let lbas = offset / block_size..end.div_ceil(block_size);
            let mut runs = Runs::new(lbas, unmapped_reads_zeros(&self.profile));
            if !self.ask(&mut runs, answer_len, false).await? {
                return Ok(Extent::all_data(offset, len));
            }
            let extents = runs.found.into_iter().map(|(lbas, state)| {
                let start = (lbas.start * block_size).max(offset);
                Extent::new(start, lbas.end.saturating_mul(block_size).min(end) - start, state)
            });
            Ok(extents.collect())
        })
    }

    /// Returns whether the unit may report the states of its blocks.
    pub(super) fn reports_block_states(&self) -> bool {
        let question = Cdb::get_lba_status(0, 0).operation_code();
        let known = self.unit.state().known();
        self.capacity.provisioning_management && !known.is_unknown_form(question)
    }

    /// Returns the states of blocks, in order and without a gap; they may end before the range does. `None` if
    /// the unit does not report them. The states are returned only once it is certain which unit reported them.
    pub(super) fn states(&self, lbas: Range<u64>) -> BoxFuture<'_, Result<Option<States>, Error>> {
        boxed(async move {
            let mut runs = Runs::new(lbas, unmapped_reads_zeros(&self.profile));
            for _ in 0..MAX_QUESTIONS {
                if runs.is_complete() || runs.found.len() >= Extent::MAX_REPORTED {
                    break;
                }
                if !self.ask(&mut runs, ANSWER_LEN, true).await? {
                    return Ok(None);
                }
            }
            Ok(Some(runs.found))
        })
    }

    /// Sends one GET LBA STATUS for the blocks from `runs.next` on, and returns whether the unit reports their
    /// states. A unit that refuses the command, or contradicts itself, is not queried again.
    async fn ask(
        &self,
        runs: &mut Runs,
        answer_len: u32,
        wants_proof: bool,
    ) -> Result<bool, Error> {
        let cdb = Cdb::get_lba_status(runs.next, answer_len);
        let code = cdb.operation_code();
        let question = Transfer::query(cdb, answer_len as usize);
        let question = if wants_proof { question.with_proof() } else { question };
        let told = match self.execute(question).await {
            Ok(completion) => LbaStatus::decode(&completion.answer.data).ok(),
            // The unit has shrunk; it may still support the command.
            Err(error) if is_out_of_range(&error) => return Ok(false),
            Err(error) if is_refused(&error) => None,
            Err(error) => return Err(error),
        };
        let is_told = told.and_then(|status| runs.take(&status)).is_some();
        if !is_told {
            tracing::debug!(lba = runs.next, "the unit does not tell what it holds");
            self.unit.state().lock().identity.unknown_commands.add(code);
        }
        Ok(is_told)
    }
}

fn is_out_of_range(error: &Error) -> bool {
    let code = AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE;
    error.sense().is_some_and(|sense| sense.additional == code)
}

/// The runs of blocks of a range, as the responses report them.
#[derive(Debug)]
struct Runs {
    /// First block whose state is not known yet.
    next: u64,
    /// Block after the last one of the range.
    end: u64,
    /// Whether deallocated blocks read as zeros.
    reads_zeros: bool,
    /// Runs that the responses have reported so far; neighbours differ in state.
    found: States,
}

impl Runs {
    const fn new(lbas: Range<u64>, reads_zeros: bool) -> Self {
        Self { next: lbas.start, end: lbas.end, reads_zeros, found: Vec::new() }
    }

    const fn is_complete(&self) -> bool {
        self.next >= self.end
    }

    /// Adds the runs of a response to a command for the blocks from `next` on. Returns `None` if the response
    /// contradicts itself or the command; then no report of the unit counts. The runs must begin at `next` and
    /// follow each other without a gap, and none may be empty (SBC-3 §5.3.2), even after the end of the range.
    fn take(&mut self, answer: &LbaStatus) -> Option<()> {
        let mut lba = self.next;
        for run in &answer.extents {
            if run.lba != lba || run.blocks == 0 {
                return None;
            }
            lba = lba.checked_add(run.blocks.into())?;
            self.push(lba, self.state_of(run.status));
        }
        (!answer.extents.is_empty()).then_some(())
    }

    fn push(&mut self, end: u64, state: ExtentState) {
        let run = self.next..end.min(self.end);
        if run.is_empty() {
            return;
        }
        self.next = run.end;
        match self.found.last_mut() {
            Some((last, same)) if *same == state => last.end = run.end,
            Some(_) | None => self.found.push((run, state)),
        }
    }

    const fn state_of(&self, status: ProvisioningStatus) -> ExtentState {
        match status {
            ProvisioningStatus::Deallocated if self.reads_zeros => ExtentState::Deallocated,
            ProvisioningStatus::Anchored if self.reads_zeros => ExtentState::Anchored,
            ProvisioningStatus::Deallocated | ProvisioningStatus::Anchored => ExtentState::Unknown,
            ProvisioningStatus::Mapped | ProvisioningStatus::Other(_) => ExtentState::Data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPED: u8 = 0;
    const DEALLOCATED: u8 = 1;
    const ANCHORED: u8 = 2;
    const RESERVED: u8 = 3;

    /// Creates the response with these runs: first block, number of blocks, status.
    fn answer(runs: &[(u64, u32, u8)]) -> LbaStatus {
        let mut data = vec![0; 8];
        data[3] = u8::try_from(4 + 16 * runs.len()).unwrap();
        for (lba, blocks, status) in runs {
            data.extend(lba.to_be_bytes());
            data.extend(blocks.to_be_bytes());
            data.extend([*status, 0, 0, 0]);
        }
        LbaStatus::decode(&data).unwrap()
    }

    fn runs(reads_zeros: bool) -> Runs {
        Runs::new(10..40, reads_zeros)
    }

    #[test]
    fn answers_are_put_together_merged_and_cut() {
        let mut runs = runs(true);
        runs.take(&answer(&[(10, 2, MAPPED), (12, 3, RESERVED), (15, 5, DEALLOCATED)])).unwrap();
        assert_eq!(runs.next, 20);
        assert!(!runs.is_complete());
        runs.take(&answer(&[(20, 1, DEALLOCATED), (21, 9, ANCHORED), (30, u32::MAX, MAPPED)]))
            .unwrap();
        assert!(runs.is_complete());
        let found = [
            (10..15, ExtentState::Data),
            (15..21, ExtentState::Deallocated),
            (21..30, ExtentState::Anchored),
            (30..40, ExtentState::Data),
        ];
        assert_eq!(runs.found, found);
    }

    /// SBC-3: only LBPRZ says that deallocated blocks read as zeros; without it their state is unknown.
    #[test]
    fn blocks_without_data_are_zeros_only_if_the_unit_says_so() {
        let mut runs = runs(false);
        runs.take(&answer(&[(10, 10, DEALLOCATED), (20, 20, ANCHORED)])).unwrap();
        assert_eq!(runs.found, [(10..40, ExtentState::Unknown)]);
    }

    #[test]
    fn answers_that_contradict_themselves_count_for_nothing() {
        let nonsense: [&[(u64, u32, u8)]; 8] = [
            // The runs make no progress.
            &[],
            &[(10, 0, DEALLOCATED)],
            &[(10, 5, DEALLOCATED), (15, 0, DEALLOCATED)],
            // The first block is not the one asked for.
            &[(0, 40, DEALLOCATED)],
            &[(11, 40, DEALLOCATED)],
            // The runs have a gap, an overlap, and an overlap after the end of the range.
            &[(10, 5, DEALLOCATED), (16, 5, DEALLOCATED)],
            &[(10, 5, DEALLOCATED), (14, 5, MAPPED)],
            &[(10, 30, DEALLOCATED), (39, 5, MAPPED)],
        ];
        for told in nonsense {
            assert_eq!(runs(true).take(&answer(told)), None, "{told:?}");
        }
        let last = Runs { next: u64::MAX - 5, end: u64::MAX, ..runs(true) }.take(&answer(&[(
            u64::MAX - 5,
            6,
            DEALLOCATED,
        )]));
        assert_eq!(last, None, "a run behind the last address");
    }
}
