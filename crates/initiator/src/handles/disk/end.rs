//! Explains the errors of requests beyond the end of a unit that has shrunk.

use std::ops::Range;

use iscsi_multipath::RangeError;
use iscsi_pdu::scsi::{AdditionalSense, SenseKey};

use super::Disk;
use crate::boxed::{BoxFuture, boxed};
use crate::error::{CallerCause, Error, UnitCause};

impl Disk {
    /// Checks that a range lies on the unit, by the size that the unit reported last.
    pub(super) fn check_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        let state = self.unit.state();
        // Usually the range lies on the unit, and then no lock is needed.
        if offset.checked_add(len).is_some_and(|end| end <= state.known().size()) {
            return Ok(());
        }
        state.lock().identity.check_range(offset, len).map_err(|why| match why {
            RangeError::Shrunk { before, now } => {
                Error::from(UnitCause::CapacityChanged { before, now })
            }
            RangeError::Beyond { capacity } => {
                Error::from(CallerCause::OutOfRange { offset, len, capacity })
            }
        })
    }

    /// Returns the error of a request for these blocks. If the unit does not have the blocks, reads its capacity
    /// again: the unit may have shrunk, and may report that later or over another session.
    pub(super) fn explain(&self, error: Error, blocks: Option<Range<u64>>) -> BoxFuture<'_, Error> {
        boxed(async move {
            let Some(blocks) = blocks.filter(|_| is_beyond_end(&error)) else { return error };
            let block_size = u64::from(self.block_size());
            let (start, end) = (blocks.start * block_size, blocks.end * block_size);
            if self.confirm().await.is_err() {
                return error;
            }
            self.check_range(start, end - start).err().unwrap_or(error)
        })
    }
}

/// Returns whether the unit has fewer blocks than the command needs.
fn is_beyond_end(error: &Error) -> bool {
    let sense = error.sense().filter(|sense| !sense.deferred);
    sense.is_some_and(|sense| {
        sense.key == SenseKey::IllegalRequest
            && sense.additional == AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE
    })
}
