//! A disk whose calls wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::blocking::runtime::Runtime;
use crate::device::Extent;
use crate::error::Error;
use crate::multipath::spread::Spread;
use crate::multipath::stats::DiskStats;
use crate::state::profile::Profile;

/// The last handle waits so long for the logout.
const LOGOUT_LIMIT: Duration = Duration::from_secs(2);

/// A disk whose calls wait: [`crate::Disk`] for programs without async. Clones are the same disk.
///
/// When the last handle and the last [`DiskStream`](super::DiskStream) are dropped, the disk is logged
/// out; the drop waits for that, two seconds at most. Every call that waits gives
/// [`Error::InsideRuntime`] in an async task.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Each clone is a handle of its own, which is told of each loss.
    handle: crate::Disk,
    all: Arc<All>,
}

/// What all handles of a disk have in common. The last one takes it along.
#[derive(Debug)]
struct All {
    disk: crate::Disk,
    runtime: Arc<Runtime>,
}

impl Disk {
    pub(super) fn new(disk: crate::Disk, runtime: Arc<Runtime>) -> Self {
        Self { handle: disk.clone(), all: Arc::new(All { disk, runtime }) }
    }

    /// The async disk, for [`Initiator::block_on`](crate::blocking::Initiator::block_on), and for what
    /// it tells without waiting.
    pub fn get_ref(&self) -> &crate::Disk {
        &self.handle
    }

    /// What the unit says of itself.
    pub fn profile(&self) -> &Profile {
        self.get_ref().profile()
    }

    /// The capacity, bytes.
    pub fn capacity(&self) -> u64 {
        self.get_ref().capacity()
    }

    /// The length of a logical block, bytes: what is aligned to it is read and written directly.
    pub fn block_size(&self) -> u32 {
        self.get_ref().block_size()
    }

    /// Whether the unit refuses writes.
    pub fn is_write_protected(&self) -> bool {
        self.get_ref().is_write_protected()
    }

    /// Over how many sessions the disk is spread, and why.
    pub fn spread(&self) -> Spread {
        self.get_ref().spread()
    }

    /// How many commands were sent again, over all its sessions, those that are gone too.
    pub fn retries(&self) -> u64 {
        self.get_ref().retries()
    }

    /// What was counted since the disk was opened, as [`crate::Disk::stats`].
    pub fn stats(&self) -> DiskStats {
        self.get_ref().stats()
    }

    /// Fills the buffer with what begins at `offset`. The bytes are copied into it once they are all
    /// there; when the read fails, it stays as it was.
    ///
    /// # Errors
    /// As [`crate::Disk::read_at`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let data = self.block_on(self.get_ref().read_at(offset, buffer.len()))??;
        buffer.copy_from_slice(&data);
        Ok(())
    }

    /// Writes data from `offset` on. It is copied first: what is on the wire must not change. When
    /// this returns, the unit has the data, maybe in a cache that a power failure empties: see
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`crate::Disk::write_at`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.block_on(self.get_ref().write_at(offset, Bytes::copy_from_slice(data)))?
    }

    /// Brings all that was written onto the medium: every write of any thread that had ended when this
    /// was called.
    ///
    /// # Errors
    /// As [`crate::Disk::flush`].
    pub fn flush(&self) -> Result<(), Error> {
        self.block_on(self.get_ref().flush())?
    }

    /// Asks whether the unit is still the one that was opened, as [`crate::Disk::confirm_unit`].
    ///
    /// # Errors
    /// As [`crate::Disk::confirm_unit`].
    pub fn confirm_unit(&self) -> Result<(), Error> {
        self.block_on(self.get_ref().confirm_unit())?
    }

    /// Deallocates the whole blocks of a range, as [`crate::Disk::discard`].
    ///
    /// # Errors
    /// As [`crate::Disk::discard`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.block_on(self.get_ref().discard(offset, len))?
    }

    /// Writes zeros, without sending them where the unit can make them.
    ///
    /// # Errors
    /// As [`crate::Disk::write_zeroes`].
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.block_on(self.get_ref().write_zeroes(offset, len))?
    }

    /// The same, and its blocks stay allocated, or become so.
    ///
    /// # Errors
    /// As [`crate::Disk::write_allocated_zeroes`].
    pub fn write_allocated_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.block_on(self.get_ref().write_allocated_zeroes(offset, len))?
    }

    /// Which parts of a range hold data, as [`crate::Disk::extents`].
    ///
    /// # Errors
    /// As [`crate::Disk::extents`].
    pub fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>, Error> {
        self.block_on(self.get_ref().extents(offset, len))?
    }

    /// The first of them, as [`crate::Disk::first_extent`].
    ///
    /// # Errors
    /// As [`crate::Disk::first_extent`].
    pub fn first_extent(&self, offset: u64, len: u64) -> Result<Option<Extent>, Error> {
        self.block_on(self.get_ref().first_extent(offset, len))?
    }

    /// Ends all sessions of the disk in order: no request is taken any more, those under way are
    /// finished.
    ///
    /// # Errors
    /// As [`crate::Disk::logout`].
    pub fn logout(&self) -> Result<(), Error> {
        self.block_on(self.get_ref().logout())?
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.all.runtime.block_on(future)
    }
}

impl Drop for All {
    fn drop(&mut self) {
        let disk = self.disk.clone();
        let logout = async move {
            if let Ok(Err(error)) = timeout(LOGOUT_LIMIT, disk.logout()).await {
                tracing::debug!(%error, "the logout of a dropped disk failed");
            }
        };
        let mut logout = Box::pin(logout);
        if self.runtime.block_on(&mut logout).is_err() {
            // In an async task it goes on by itself, and the runtime with it.
            let runtime = Arc::clone(&self.runtime);
            self.runtime.spawn(async move {
                logout.await;
                drop(runtime);
            });
        }
    }
}
