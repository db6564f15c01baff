//! Reads and writes a logical unit by bytes, at any alignment.

mod blocks;
mod device;
mod end;
mod extents;
mod join;
pub(crate) mod open;
mod pages;
mod read;
pub(crate) mod reservation;
mod status;
pub(crate) mod stream;
mod unmap;
mod zeros;

use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use iscsi_multipath::paths::Credit;
use iscsi_multipath::{Capacity, Profile};
use iscsi_pdu::IscsiName;
use iscsi_pdu::scsi::Lun;
use iscsi_session::{Completion, Payload};
use iscsi_tuner::Plan;
use tracing::{Span, error_span, field};

use crate::boxed::{BoxFuture, boxed};
use crate::error::{Consequence, Error, UnitCause};
use crate::handles::disk::blocks::distance;
use crate::handles::disk::join::{WIDTH, try_join, try_join_all};
use crate::handles::disk::pages::Cutter;
use crate::multipath::disk_status::SessionsReason;
use crate::multipath::paths::path::Path;
use crate::multipath::paths::{Paths, now};
use crate::multipath::report::Report;
use crate::multipath::requests::confirmation::confirm;
use crate::multipath::requests::execute::{Answered, execute};
use crate::multipath::requests::flush::flush;
use crate::multipath::supervisor::reopen::Opener;
use crate::runtime::{self, within};
use crate::session::Session;
use crate::state::counters::RequestKind;
use crate::state::loss_cursor::SeenLosses;
use crate::state::range_locks::{RangeGuard, RangeLocks};
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::{Expected, Transfer};

/// A logical unit as an array of bytes.
///
/// A disk splits requests of any offset and length by the limits of the unit (VPD page B0) and by
/// [`Options::with_max_transfer`](crate::Options::with_max_transfer), and runs the parts concurrently. A write
/// that begins or ends within a block reads that block first and writes it back with the new bytes in it.
/// Writes to the same block run one after the other, in the order of their first polls. This includes writes by
/// other disks of the same [`Initiator`](crate::Initiator) to this unit. A write whose future was dropped still
/// keeps later writes waiting until the target has finished with it.
///
/// Each clone is a handle to the same disk. [`flush`](Self::flush) reports each loss to each handle once; a new clone
/// reports the losses that no handle has reported yet. Tasks that flush together share one handle (`Arc<Disk>`).
///
/// A lost session is reconnected, and its requests are retried or move to another session (failover): see [Retry,
/// reconnect and failover](crate#retry-reconnect-and-failover).
///
/// ```
/// use bytes::Bytes;
/// use iscsi_initiator::Initiator;
///
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let unit = RamDisk::new(512, 4096);
/// # let target = TargetConfig::new("iqn.2026-01.org.example:disk", unit);
/// # let server = Server::start(Target::new(target)).await?;
/// # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
/// let disk = Initiator::new("iqn.2026-01.org.example:host")?.disk(url).await?;
/// // Across the edges of blocks, from pages of any lengths.
/// disk.write_at(700, vec![Bytes::from_static(b"one, "), Bytes::from_static(b"two")]).await?;
/// assert_eq!(disk.read_at(705, 3).await?, "two");
/// disk.write_zeroes(0, disk.capacity()).await?;
/// disk.flush().await?;
/// let extents = disk.extents(0, disk.capacity()).await?;
/// assert!(extents.iter().all(|extent| extent.state.reads_zeros()));
/// println!("{} bytes over {}", disk.capacity(), disk.status());
/// # Ok(())
/// # }
/// ```
#[doc(alias("LUN", "block device", "multipath", "MPIO"))]
#[derive(Clone, Debug)]
pub struct Disk {
    unit: LogicalUnit,
    paths: Paths,
    report: Arc<Report>,
    profile: Arc<Profile>,
    /// Copy of the profile's capacity, so that requests need not read the profile.
    capacity: Capacity,
    /// Locks of the ranges that are being written, by other disks of the initiator as well.
    range_locks: RangeLocks,
    /// Most bytes of one command, a whole number of blocks.
    max_transfer: usize,
    /// Opens the sessions of the disk; `None` if the disk was opened over an existing session.
    opener: Option<Arc<Opener>>,
}

impl Disk {
    pub(crate) fn new(unit: LogicalUnit, profile: Arc<Profile>) -> Self {
        let max_transfer = iscsi_multipath::max_transfer(&profile, unit.session().max_transfer());
        let span = span(unit.session().target(), Some(unit.lun()));
        let report = Arc::new(Report::within(span));
        report.set_one_session(SessionsReason::OneSession);
        report.publish_to(&unit.state().known().events);
        let (path, session) = (Path::new(unit.clone(), 0), unit.session());
        let (budget, policy) = (session.budget().clone(), session.policy().clone());
        let paths = Paths::new(path, Credit::UNLIMITED, budget, policy, Arc::clone(&report));
        let (range_locks, flushes) = session.shared_of(unit.lun(), &profile);
        unit.state().flushes_or(|| flushes);
        Self {
            unit,
            paths,
            report,
            capacity: profile.capacity,
            profile,
            range_locks,
            max_transfer,
            opener: None,
        }
    }

    pub(crate) fn opened_by(self, opener: Arc<Opener>) -> Self {
        Self { opener: Some(opener), ..self }
    }

    /// Returns the same disk with these paths and this report.
    pub(crate) fn over(self, paths: Paths, report: Arc<Report>) -> Self {
        Self { paths, report, ..self }
    }

    pub(crate) fn with_report(self, report: Arc<Report>) -> Self {
        Self { report, ..self }
    }

    /// Returns the logical unit, through a session that carries requests now. If there is none, through a session
    /// that has ended or is a standby: call this method again after a reconnect.
    pub fn unit(&self) -> LogicalUnit {
        let used = self.paths.in_use().into_iter().chain(self.paths.open()).next();
        used.map_or_else(|| self.unit.clone(), |(_, path)| path.unit.clone())
    }

    /// Returns what the unit reports about itself: identity, capacity and limits.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the capacity of the unit now, in bytes. It may grow and shrink while the disk is open; the capacity at
    /// the beginning is in the [profile](Self::profile).
    ///
    /// A unit that has grown can be used up to its new end as soon as it has reported the change. A request that ends
    /// beyond the end of a unit that has shrunk fails with [`UnitChanged`](crate::ErrorKind::UnitChanged).
    #[doc(alias = "resize")]
    pub fn capacity(&self) -> u64 {
        self.unit.state().known().size()
    }

    /// Returns the length of a logical block, in bytes. A request that is aligned to it needs no extra read.
    pub fn block_size(&self) -> u32 {
        self.capacity.block_size
    }

    /// Returns the most bytes of one command; longer requests are split.
    pub const fn max_transfer(&self) -> usize {
        self.max_transfer
    }

    /// Sets the most bytes of one command for this handle: rounded down to whole blocks, at least one block, and at
    /// most what the unit takes.
    #[must_use]
    pub fn with_max_transfer(mut self, bytes: usize) -> Self {
        self.max_transfer = iscsi_multipath::max_transfer(&self.profile, bytes);
        self
    }

    /// Returns whether the unit refuses writes.
    pub fn is_write_protected(&self) -> bool {
        self.profile.write_protected
    }

    /// Returns an error if the unit is write protected, as a write does.
    ///
    /// # Errors
    /// [`WriteProtected`](crate::ErrorKind::WriteProtected).
    pub fn check_writable(&self) -> Result<(), Error> {
        let lun = self.unit.lun();
        if self.is_write_protected() { Err(UnitCause::WriteProtected(lun).into()) } else { Ok(()) }
    }

    /// Writes data from `offset` on: `Bytes`, or a list of `Bytes` of any lengths. The pages are shared, not copied.
    ///
    /// When this returns, the unit has the data, perhaps in a cache that a power failure empties: see
    /// [`flush`](Self::flush). A write that fails or is dropped may have been executed in part.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) beyond the disk,
    /// [`WriteProtected`](crate::ErrorKind::WriteProtected), [`Unsettled`](crate::ErrorKind::Unsettled) where a
    /// lost session was writing, or as [`LogicalUnit::write`].
    pub async fn write_at(&self, offset: u64, data: impl Into<Payload>) -> Result<(), Error> {
        self.write_payload(offset, data.into()).await
    }

    async fn write_payload(&self, offset: u64, data: Payload) -> Result<(), Error> {
        self.check_writable()?;
        let Some(blocks) = self.blocks_around(offset, data.len() as u64)? else { return Ok(()) };
        let extent = Arc::new(self.take(blocks.clone()).await?);
        let write = || self.write_taken(&blocks, offset, &data, &extent);
        self.unit.losses().until_not_lost(write).await
    }

    /// Flushes the unit's cache (SYNCHRONIZE CACHE), so that every write that had returned before this call is
    /// on the medium, whichever session carried it.
    ///
    /// # Errors
    /// As [`LogicalUnit::flush`].
    #[doc(alias("sync", "fsync", "SYNCHRONIZE CACHE"))]
    pub async fn flush(&self) -> Result<(), Error> {
        let losses = self.unit.losses();
        let seen = losses.begin();
        self.flush_unreported(seen).await?;
        losses.end(seen)
    }

    /// Flushes without reporting losses to the handle. The statistics count the flush as failed if more was
    /// lost than `seen`.
    fn flush_unreported(&self, seen: SeenLosses) -> BoxFuture<'_, Result<(), Error>> {
        boxed(async move {
            let (running, begun) = (self.begin(RequestKind::Flush, 0), now());
            let result = flush(&self.paths).await;
            let is_good = result.is_ok() && !self.unit.losses().are_more_than(seen);
            running.end(is_good.then(|| now().saturating_duration_since(begun)));
            result
        })
    }

    /// Checks over each session that the unit is still the one that was opened, by its name and its block size.
    /// A disk does this by itself when the target reports an event that gives a reason. Call this method to find
    /// out about a replaced unit also from a target that reports nothing.
    ///
    /// # Errors
    /// [`UnitChanged`](crate::ErrorKind::UnitChanged) if it is another unit, may have another medium, or does
    /// not report its name within [`Options::with_retry_timeout`](crate::Options::with_retry_timeout); otherwise
    /// as [`LogicalUnit::read`].
    pub async fn confirm_unit(&self) -> Result<(), Error> {
        self.confirm().await
    }

    pub(super) fn confirm(&self) -> BoxFuture<'_, Result<(), Error>> {
        boxed(confirm(&self.paths))
    }

    /// Returns the sessions that carry data now, the first one first.
    #[doc(alias("paths", "multipath"))]
    pub fn sessions(&self) -> Vec<Session> {
        self.paths.open().iter().map(|(_, path)| path.unit.session().clone()).collect()
    }

    /// Returns the number of commands that were retried, over all sessions of the disk, closed ones included.
    #[doc(alias = "retry")]
    pub fn retries(&self) -> u64 {
        self.paths.retries()
    }

    /// Counts the reports that something about the unit has changed, over all sessions of the disk: every unit
    /// attention (SAM-5 §5.14), every deferred error (SPC-4 §4.5.5), every flush that failed on the medium, and every
    /// replacement of the unit by another one. A command that ended without a status, or a session that was lost,
    /// also counts, since such a report may have been lost with it.
    ///
    /// A cache of what was read stays valid while this number does not change: between two equal values, no command
    /// of the disk brought a report of a reset, a loss, or a change of the unit. The number grows before the command
    /// that brought the report returns. A unit reports to each session at its next command, so the number does not
    /// grow while no command is sent, and it may grow several times for one event. Only differences have a meaning,
    /// not the first value.
    #[doc(alias("UNIT ATTENTION", "cache invalidation"))]
    pub fn unit_attention_count(&self) -> u64 {
        self.unit.state().known().attentions()
    }

    /// Returns how many concurrent requests of `io_size` bytes keep all sessions busy, by the tuner's plans.
    /// The limits of the options and of the [class](crate::Options::with_class) apply: the number of requests
    /// in flight, and what the class lets pass in a second.
    #[doc(alias = "concurrency")]
    pub fn queue_depth(&self, io_size: usize) -> usize {
        self.depth(io_size, |plan| plan.depth_for(io_size as u64))
    }

    /// Returns how many concurrent reads of `io_size` bytes keep all sessions busy, if there are only reads. It may
    /// be lower than [`queue_depth`](Self::queue_depth), because a read takes one round trip.
    #[doc(alias = "concurrency")]
    pub fn read_depth(&self, io_size: usize) -> usize {
        self.depth(io_size, |plan| plan.read_depth_for(io_size as u64))
    }

    fn depth(&self, io_size: usize, on_each: impl Fn(&Plan) -> u32) -> usize {
        let open = self.paths.open();
        let depths = open.iter().filter_map(|(_, path)| path.unit.session().depth(&on_each));
        let depth: u32 = depths.sum();
        let depth = self.unit.session().max_of(io_size).min(depth as usize);
        depth.min(self.paths.policy().shaped_depth(io_size).unwrap_or(usize::MAX)).max(1)
    }

    /// Ends all sessions of the disk in order (RFC 7143 §11.14): refuses new requests, waits for those in
    /// flight, then logs out.
    ///
    /// A write that was sent over two sessions has returned with the first response. Its second copy is aborted
    /// in the background, and this method waits for that: when it returns without an error, no command that was
    /// sent can change the unit any more. If a session is lost meanwhile, it is reconnected to settle its
    /// writes, or to end its registration by the key of the disk, for up to
    /// [`Options::with_retry_timeout`](crate::Options::with_retry_timeout); an attempt that has begun by then is
    /// completed.
    ///
    /// When the last handle of a disk is dropped, its sessions end in this way in the background, as long as
    /// the runtime runs. Only this method reports whether it succeeded.
    ///
    /// # Errors
    /// [`Unsettled`](crate::ErrorKind::Unsettled) if the target may still execute a write of a lost session;
    /// [`StillRegistered`](crate::ErrorKind::StillRegistered) if the unit may still know the key of the disk;
    /// otherwise the reason why a session ended, if not by this logout.
    #[doc(alias("close", "disconnect"))]
    pub async fn logout(&self) -> Result<(), Error> {
        let result = self.end_sessions().await;
        self.unit.state().known().events.end();
        result
    }

    fn end_sessions(&self) -> BoxFuture<'_, Result<(), Error>> {
        boxed(async move {
            let sessions = self.sessions();
            self.paths.end(&Error::closed());
            if let Some(result) = self.paths.closed().await {
                return result;
            }
            let mut result = Ok(());
            for (_, path) in self.paths.open() {
                result = result.and(path.unit.unregister().await);
            }
            let logouts = try_join_all(sessions.iter().map(Session::logout)).await.map(drop);
            let fencing = self.unit.state().membership.fencing();
            let ended = logouts.and(result);
            let result = match fencing.filter(|fencing| fencing.may_be_left()) {
                Some(left) => Err(left.left_because(ended.err().unwrap_or_else(Error::closed))),
                None => ended,
            };
            if self.is_settled() {
                return result;
            }
            let why = match result {
                Ok(()) => self.paths.ended().await,
                Err(why) => why,
            };
            Err(Consequence::Unsettled { why }.into())
        })
    }

    /// Returns whether the target has finished with every write that was sent to it, as far as is known. A write
    /// without a response is not finished: this may also be the second copy of a write that has returned, or a
    /// write of a lost session.
    pub fn is_settled(&self) -> bool {
        self.paths.is_settled()
    }

    /// Writes data within whole blocks that are locked. The other bytes of these blocks are read first and
    /// written back.
    async fn write_taken(
        &self,
        blocks: &Range<u64>,
        offset: u64,
        data: &Payload,
        extent: &Arc<RangeGuard>,
    ) -> Result<(), Error> {
        let range = offset..offset + data.len() as u64;
        if *blocks == range {
            return self.write_blocks(offset, data, extent).await;
        }
        // Boxed to keep the outer future small: most writes are of whole blocks, and do not come here.
        boxed(async {
            let (head, tail) = self.edges(blocks, range).await?;
            let data = pages::enclose(head, data, tail);
            self.write_blocks(blocks.start, &data, extent).await
        })
        .await
    }

    /// Writes whole blocks.
    async fn write_blocks(
        &self,
        offset: u64,
        data: &Payload,
        extent: &Arc<RangeGuard>,
    ) -> Result<(), Error> {
        let (lba, max) = (self.lba(offset), self.longest_write());
        if data.len() > max {
            // Boxed to keep the outer future small: most writes are short, and do not come here.
            return self.write_in_parts(lba, data, extent).await;
        }
        let transfer = Transfer::write(&self.capacity, lba, data.clone())?;
        self.modify(transfer.within(extent)).await
    }

    /// Writes whole blocks in parts. The length of each part is chosen when the part starts. If the link limits
    /// the length of a write when the first part starts, only few parts are concurrent.
    fn write_in_parts<'a>(
        &'a self,
        mut lba: u64,
        data: &'a Payload,
        extent: &'a Arc<RangeGuard>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        /// Number of concurrent parts if the link limits the length of a write.
        const FEW: usize = 8;
        boxed(async move {
            let is_free = self.longest_write() == self.longest_shaped();
            let mut cutter = Cutter::new(data.pages());
            let parts = std::iter::from_fn(move || {
                let part = cutter.next(self.longest_write())?;
                let at = lba;
                lba += self.lba(part.len() as u64);
                Some(async move {
                    let transfer = Transfer::write(&self.capacity, at, part)?;
                    self.modify(transfer.within(extent)).await
                })
            });
            try_join(if is_free { WIDTH } else { FEW }, parts).await.map(drop)
        })
    }

    /// Returns the length that suits a write command, in bytes, a whole number of blocks. On a slow link one
    /// write is sent while another one is answered. A long write is also divided among many slow sessions, so
    /// that none takes long for its part.
    fn longest_write(&self) -> usize {
        let max = usize::try_from(self.paths.max_request_len()).unwrap_or(usize::MAX);
        iscsi_multipath::max_transfer(&self.profile, max).min(self.longest_shaped())
    }

    /// Reads the bytes of the first and last blocks that lie outside a range.
    fn edges<'a>(
        &'a self,
        blocks: &'a Range<u64>,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<(Bytes, Bytes), Error>> {
        boxed(async move {
            let head = self.edge(blocks.start..range.start, blocks.start);
            let last = blocks.end - u64::from(self.block_size());
            let tail = self.edge(range.end..blocks.end, last);
            // Both reads run to their ends, even if one fails, because dropping a read would abort it.
            let (head, tail) = tokio::join!(head, tail);
            Ok((head?, tail?))
        })
    }

    /// Reads the bytes of a range within one block, which begins at `block`.
    async fn edge(&self, range: Range<u64>, block: u64) -> Result<Bytes, Error> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let transfer = Transfer::read(&self.capacity, self.lba(block), 1)?;
        let data = self.read(transfer.with_proof()).await?.freeze();
        Ok(data.slice(distance(block, range.start)..distance(block, range.end)))
    }

    /// Sends a transfer over the paths. Boxed, since the future of a request is copied when it is moved into a
    /// task, and a box is small.
    fn execute(
        &self,
        transfer: Transfer,
    ) -> Pin<Box<dyn Future<Output = Result<Answered, Error>> + Send + '_>> {
        Box::pin(execute(&self.paths, transfer))
    }

    /// Sends a command that changes blocks, and checks that the unit took all its data.
    fn modify(&self, transfer: Transfer) -> impl Future<Output = Result<(), Error>> + Send {
        self.request(transfer, |expected, completion| expected.all_written(&completion))
    }

    /// Sends a command, and lets `judge` check the number of bytes that the command has moved. Not an `async
    /// fn`, because such a future would store the transfer twice.
    fn request<T: Send>(
        &self,
        transfer: Transfer,
        judge: impl FnOnce(Expected, Completion) -> Result<T, Error> + Send,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let (expected, blocks) = (Expected::of(&transfer), transfer.blocks());
        let (kind, len) = (transfer.kind(), transfer.len());
        let execution = self.execute(transfer);
        async move {
            let running = self.begin(kind, len);
            let conclude = |answered: Result<Answered, Error>| {
                let time = answered.as_ref().ok().map(|answered| answered.time);
                let result = answered.and_then(|answered| judge(expected, answered.answer));
                running.end(time.filter(|_| result.is_ok()));
                result
            };
            // The result is dropped at the end of this statement; otherwise the future would have to store it.
            let error = match conclude(execution.await) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            Err(self.explain(error, blocks).await)
        }
    }

    /// Locks a range for a write, after the target has finished with the writes that overlap it.
    async fn take(&self, range: Range<u64>) -> Result<RangeGuard, Error> {
        runtime::require()?;
        match self.range_locks.try_take(&range) {
            Some(guard) => Ok(guard),
            // Boxed to keep the outer future small: few ranges are locked already.
            None => self.wait_for_range(range).await,
        }
    }

    fn wait_for_range(&self, range: Range<u64>) -> BoxFuture<'_, Result<RangeGuard, Error>> {
        boxed(async move {
            let locks = &self.range_locks;
            let patience = self.unit.session().policy().patience;
            let mut taken = pin!(locks.take(range.clone()));
            if locks.is_unsettled(&range) {
                self.paths.attention().notify_one();
            }
            loop {
                let in_time = tokio::select! {
                    biased;
                    in_time = within(patience, taken.as_mut()) => in_time,
                    end = self.paths.ended() => return Err(end),
                };
                match in_time {
                    Some(guard) => return Ok(guard),
                    None if locks.is_unsettled(&range) => {
                        let (offset, len) = (range.start, range.end - range.start);
                        return Err(UnitCause::OverlapsUnsettled { offset, len }.into());
                    }
                    None => {}
                }
            }
        })
    }

    /// Returns the smallest range of whole blocks around a range of bytes; `None` if that range is empty.
    fn blocks_around(&self, offset: u64, len: u64) -> Result<Option<Range<u64>>, Error> {
        self.check_range(offset, len)?;
        Ok(blocks::around(offset..offset + len, self.block_size()))
    }

    /// Returns the largest range of whole blocks within a range of bytes; `None` if the range contains no whole
    /// block.
    fn blocks_within(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        blocks::within(offset..offset + len, self.block_size())
    }

    /// Returns the block address of an offset in bytes, or the number of whole blocks in `bytes`.
    fn lba(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.block_size())
    }

    fn lbas(&self, bytes: &Range<u64>) -> Range<u64> {
        self.lba(bytes.start)..self.lba(bytes.end)
    }
}

/// Creates the span that names the disk in the log. It has the error level, so that it appears with every line
/// that is shown. It has no parent, because the disk outlives the span of the caller that opens it.
fn span(target: Option<&IscsiName>, lun: Option<Lun>) -> Span {
    let (target, lun) = (target.map(field::display), lun.map(field::display));
    error_span!(parent: None, "disk", target, lun)
}
