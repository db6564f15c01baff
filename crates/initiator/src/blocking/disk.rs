//! A disk whose methods block the calling thread.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use iscsi_multipath::Profile;
use tokio::time::timeout;

use crate::blocking::runtime::Runtime;
use crate::device::Extent;
use crate::error::Error;
use crate::multipath::disk_status::DiskStatus;
use crate::multipath::paths::status::PathStatus;
use crate::multipath::stats::DiskStats;

/// Time limit of the logout when the last handle is dropped.
const LOGOUT_LIMIT: Duration = Duration::from_secs(2);

/// A [`crate::Disk`] whose methods block the calling thread. Clones are the same disk.
///
/// The disk logs out when its last handle and its last [`DiskStream`](super::DiskStream) are
/// dropped. That drop waits for the logout, for at most two seconds. In an async task, every method
/// that blocks returns an error of the kind [`InvalidInput`](crate::ErrorKind::InvalidInput).
#[doc(alias("LUN", "block device"))]
#[derive(Clone, Debug)]
pub struct Disk {
    /// The async disk. Each clone is a separate handle, which reports each loss once.
    handle: crate::Disk,
    all: Arc<All>,
}

/// State that all handles of a disk share. Dropping the last handle drops this state, which logs the disk out.
#[derive(Debug)]
struct All {
    disk: crate::Disk,
    runtime: Arc<Runtime>,
}

impl Disk {
    pub(super) fn new(disk: crate::Disk, runtime: Arc<Runtime>) -> Self {
        Self { handle: disk.clone(), all: Arc::new(All { disk, runtime }) }
    }

    /// Returns the async disk: for [`Initiator::block_on`](crate::blocking::Initiator::block_on),
    /// and for its methods that do not wait.
    pub fn get_ref(&self) -> &crate::Disk {
        &self.handle
    }

    /// Returns what the unit reports about itself: identity, capacity and limits.
    pub fn profile(&self) -> &Profile {
        self.get_ref().profile()
    }

    /// Returns the capacity of the unit now, in bytes.
    pub fn capacity(&self) -> u64 {
        self.get_ref().capacity()
    }

    /// Returns the length of a logical block, in bytes. A request that is aligned to it needs no
    /// extra read.
    pub fn block_size(&self) -> u32 {
        self.get_ref().block_size()
    }

    /// Returns whether the unit refuses writes.
    pub fn is_write_protected(&self) -> bool {
        self.get_ref().is_write_protected()
    }

    /// Returns how many sessions the disk has, and why, as [`crate::Disk::status`].
    pub fn status(&self) -> DiskStatus {
        self.get_ref().status()
    }

    /// Returns the paths to the unit, each with its state, as [`crate::Disk::paths`].
    pub fn paths(&self) -> Vec<PathStatus> {
        self.get_ref().paths()
    }

    /// Returns the number of commands that were retried, over all sessions of the disk, closed ones
    /// included.
    pub fn retries(&self) -> u64 {
        self.get_ref().retries()
    }

    /// Returns the statistics of the disk since it was opened, as [`crate::Disk::stats`].
    pub fn stats(&self) -> DiskStats {
        self.get_ref().stats()
    }

    /// Fills `buffer` with the bytes from `offset` on. They are copied into the buffer when all have arrived, so
    /// a read that fails leaves the buffer as it was.
    ///
    /// # Errors
    /// As [`crate::Disk::read_at`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let data = self.block_on(self.get_ref().read_at(offset, buffer.len()))??;
        buffer.copy_from_slice(&data);
        Ok(())
    }

    /// Writes `data` from `offset` on. The data is copied first, because bytes in flight must not
    /// change.
    ///
    /// When this returns, the unit has the data, perhaps in a cache that a power failure empties:
    /// see [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`crate::Disk::write_at`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.block_on(self.get_ref().write_at(offset, Bytes::copy_from_slice(data)))?
    }

    /// Flushes the unit's cache, so that every write that had returned before this call, in any thread, is on
    /// the medium.
    ///
    /// # Errors
    /// As [`crate::Disk::flush`].
    #[doc(alias("sync", "fsync", "SYNCHRONIZE CACHE"))]
    pub fn flush(&self) -> Result<(), Error> {
        self.block_on(self.get_ref().flush())?
    }

    /// Checks that the unit is still the one that was opened, as [`crate::Disk::confirm_unit`].
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
    #[doc(alias("unmap", "trim"))]
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.block_on(self.get_ref().discard(offset, len))?
    }

    /// Writes zeros to a range, as [`crate::Disk::write_zeroes`]: the zeros are not sent if the unit can make
    /// them.
    ///
    /// # Errors
    /// As [`crate::Disk::write_zeroes`].
    #[doc(alias = "WRITE SAME")]
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.block_on(self.get_ref().write_zeroes(offset, len))?
    }

    /// Writes zeros to a range and keeps its blocks allocated, as
    /// [`crate::Disk::write_allocated_zeroes`].
    ///
    /// # Errors
    /// As [`crate::Disk::write_allocated_zeroes`].
    pub fn write_allocated_zeroes(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.block_on(self.get_ref().write_allocated_zeroes(offset, len))?
    }

    /// Returns which parts of a range hold data, as [`crate::Disk::extents`].
    ///
    /// # Errors
    /// As [`crate::Disk::extents`].
    #[doc(alias("GET LBA STATUS", "SEEK_HOLE"))]
    pub fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>, Error> {
        self.block_on(self.get_ref().extents(offset, len))?
    }

    /// Returns the first extent of a range, as [`crate::Disk::first_extent`].
    ///
    /// # Errors
    /// As [`crate::Disk::first_extent`].
    pub fn first_extent(&self, offset: u64, len: u64) -> Result<Option<Extent>, Error> {
        self.block_on(self.get_ref().first_extent(offset, len))?
    }

    /// Ends all sessions of the disk in order: refuses new requests, waits for those in flight,
    /// then logs out.
    ///
    /// # Errors
    /// As [`crate::Disk::logout`].
    #[doc(alias("close", "disconnect"))]
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
            // In an async task the logout continues in the background, and keeps the runtime until its end.
            let runtime = Arc::clone(&self.runtime);
            self.runtime.spawn(async move {
                logout.await;
                drop(runtime);
            });
        }
    }
}
