//! An export as a device.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{
    Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, DeviceResult, Extent,
    ExtentState, RangeSet,
};
use iscsi_nbd::client::Answer;
use iscsi_nbd::{Command, Export, Extent as Status, MAX_PAYLOAD, TransmissionFlags};

use super::NbdError;
use super::connection::{Failed, MAX_RANGE, unexpected};
use super::connections::Connections;
use super::dirty_bitmap::DirtyBitmap;
use super::losses::ReportedLosses;
use super::opening;
use super::uri::NbdUri;
use super::writes::{Write, Writes};
use crate::boxed::{BoxFuture, boxed};

/// Preferred length of a request, bytes.
const PREFERRED: usize = 1 << 20;
/// Bytes in flight that keep one connection busy.
const DEPTH: usize = 16 << 20;

/// An export of an NBD server.
///
/// Requests may have any offset and length: partial blocks are read, changed and written back. Writes that
/// overlap are sent one after the other.
///
/// A connection is also closed and made again if the server sends nothing for [`NbdUri::command_timeout`]
/// while requests are in flight. Requests without a reply are then sent again; they wait for a connection for
/// up to [`NbdUri::retry_timeout`]. With a lost connection, writes that were answered and not flushed may be
/// lost. So the next flush fails ([`NbdError::UnflushedWritesLost`]), once for each handle: write the data
/// again and flush again. All requests fail if the server breaks the protocol, or comes back with another
/// export: one of another size or with other reported properties.
///
/// NBD cannot abort the requests that a lost connection has left in flight. A server that continues to run
/// may execute such a write later, over newer data in the same range. A server that has restarted has no such
/// requests.
///
/// A clone is a further handle to the same device.
#[derive(Debug)]
pub struct NbdDevice {
    connections: Arc<Connections>,
    export: Arc<Export>,
    block_size: u64,
    max_payload: u64,
    writes: Writes,
    reported: ReportedLosses,
}

impl Clone for NbdDevice {
    fn clone(&self) -> Self {
        Self {
            connections: Arc::clone(&self.connections),
            export: Arc::clone(&self.export),
            block_size: self.block_size,
            max_payload: self.max_payload,
            writes: self.writes.clone(),
            reported: self.reported.further(self.connections.losses()),
        }
    }
}

impl NbdDevice {
    /// Opens an export, over several connections if the server accepts them.
    ///
    /// # Errors
    /// The error of the last attempt, if the export does not open within [`NbdUri::open_timeout`].
    pub async fn open(uri: &NbdUri) -> Result<Self, NbdError> {
        Ok(Self::connect(uri, None).await?.0)
    }

    /// Opens an export, and returns the ranges that a dirty bitmap of QEMU marks in it. Unlike
    /// [`DirtyBitmap::ranges`] it needs no second connection: qemu-nbd accepts one client by default.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`NbdError::NoBitmap`], [`NbdError::Bitmap`].
    pub async fn open_with_bitmap(
        uri: &NbdUri,
        bitmap: &str,
    ) -> Result<(Self, RangeSet), NbdError> {
        let bitmap = DirtyBitmap::new(uri.clone(), bitmap);
        let (device, marked) = Self::connect(uri, Some(&bitmap)).await?;
        Ok((device, marked.unwrap_or_default()))
    }

    fn connect<'a>(
        uri: &'a NbdUri,
        bitmap: Option<&'a DirtyBitmap>,
    ) -> BoxFuture<'a, Result<(Self, Option<RangeSet>), NbdError>> {
        boxed(async move {
            let (connections, export, marked) = opening::open(uri, bitmap).await?;
            let block_size = u64::from(export.block_sizes.minimum.max(1));
            let max_payload = u64::from(export.block_sizes.maximum.min(MAX_PAYLOAD));
            let device = Self {
                connections: connections.into(),
                block_size,
                max_payload: (max_payload / block_size * block_size).max(block_size),
                export: export.into(),
                writes: Writes::default(),
                reported: ReportedLosses::default(),
            };
            Ok((device, marked))
        })
    }

    /// Returns the export as the server described it.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Returns whether all connections are lost, so that requests wait for the server, up to
    /// [`NbdUri::retry_timeout`].
    pub fn is_away(&self) -> bool {
        self.connections.is_away()
    }

    fn has(&self, flag: TransmissionFlags) -> bool {
        self.export.flags.contains(flag)
    }

    /// Returns the range, extended to whole blocks.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start / self.block_size * self.block_size;
        start..range.end.next_multiple_of(self.block_size).min(self.export.size)
    }

    fn check(&self, offset: u64, len: u64) -> DeviceResult<Range<u64>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.export.size);
        end.map(|end| offset..end).ok_or_else(|| DeviceErrorKind::InvalidInput.into())
    }

    async fn read(&self, offset: u64, mut buffer: BytesMut) -> DeviceResult<BytesMut> {
        let range = self.check(offset, buffer.len() as u64)?;
        let around = self.around(&range);
        if around != range {
            let whole = BytesMut::zeroed(to_usize(around.end - around.start));
            let whole = self.read_blocks(around.start, whole).await?;
            let head = to_usize(range.start - around.start);
            buffer.copy_from_slice(&whole[head..head + to_usize(range.end - range.start)]);
            return Ok(buffer);
        }
        self.read_blocks(offset, buffer).await
    }

    async fn read_blocks(&self, offset: u64, mut buffer: BytesMut) -> DeviceResult<BytesMut> {
        let (mut at, mut whole) = (offset, BytesMut::new());
        while !buffer.is_empty() {
            let part = buffer.split_to(buffer.len().min(to_usize(self.max_payload)));
            let len = part.len() as u64;
            whole.unsplit(self.read_part(at, part).await?);
            at += len;
        }
        Ok(whole)
    }

    /// Reads a range that fits in one request.
    async fn read_part(&self, at: u64, mut buffer: BytesMut) -> DeviceResult<BytesMut> {
        let len = buffer.len();
        loop {
            match self.connections.any().await?.read(at, buffer).await {
                Ok(data) => return Ok(data),
                Err(Failed::Refused(error)) => return Err(error),
                // The lost request owned the buffer, so the next request gets a new one.
                Err(Failed::Lost) => buffer = BytesMut::zeroed(len),
            }
        }
    }

    /// Sends any request other than a read, again after each lost connection: executing it twice does no
    /// harm. Returns the result, and the id of the context that reports holes on the connection that was
    /// used.
    async fn ask(
        &self,
        command: Command,
        offset: u64,
        len: u64,
        data: &[Bytes],
        write: Option<&Arc<Write>>,
    ) -> DeviceResult<(Answer, Option<u32>)> {
        let len =
            u32::try_from(len).map_err(|error| DeviceError::new(DeviceErrorKind::Other, error))?;
        loop {
            let connection = self.connections.any().await?;
            match connection.ask(command, offset, len, data.to_vec(), write.cloned()).await {
                Ok(answer) => return Ok((answer, connection.allocation())),
                Err(Failed::Refused(error)) => return Err(error),
                Err(Failed::Lost) => {}
            }
        }
    }

    /// Runs a change of the export. If this handle reports a loss while the change is in flight, the loss may
    /// include the change, so the next flush reports it again.
    async fn changed_by(&self, change: impl Future<Output = DeviceResult<()>>) -> DeviceResult<()> {
        let reported = self.reported.count();
        change.await?;
        if self.reported.count() > reported {
            self.reported.overtaken(reported);
        }
        Ok(())
    }

    /// Returns an error if there is a loss that this handle has not reported.
    fn report_loss(&self) -> DeviceResult<()> {
        if self.reported.is_news(self.connections.losses()) {
            return Err(NbdError::UnflushedWritesLost.into());
        }
        Ok(())
    }

    async fn flush_all(&self) -> DeviceResult<()> {
        loop {
            self.report_loss()?;
            match self.connections.flush().await? {
                // A connection may have been lost before the flush collected the connections.
                Ok(()) => return self.report_loss(),
                Err(Failed::Refused(error)) => return Err(error),
                Err(Failed::Lost) => {}
            }
        }
    }

    async fn write(&self, offset: u64, mut pages: Vec<Bytes>) -> DeviceResult<()> {
        let len: usize = pages.iter().map(Bytes::len).sum();
        let range = self.check(offset, len as u64)?;
        let around = self.around(&range);
        if range.is_empty() {
            return Ok(());
        }
        let write = Arc::new(self.writes.begin(around.clone()).await);
        if around != range {
            let edge = |edge: Range<u64>| {
                self.read(edge.start, BytesMut::zeroed(to_usize(edge.end - edge.start)))
            };
            let head = edge(around.start..range.start).await?.freeze();
            let tail = edge(range.end..around.end).await?.freeze();
            pages = [vec![head], pages, vec![tail]].concat();
        }
        let mut at = around.start;
        while at < around.end {
            let len = (around.end - at).min(self.max_payload);
            let data = take(&mut pages, to_usize(len));
            let command = Command::Write { fua: false };
            self.change(command, at, len, data, Some(Arc::clone(&write))).await?;
            at += len;
        }
        Ok(())
    }

    /// Zeroes a range by requests without data. Partial blocks at its edges are written as data, and so is
    /// the whole range if the server does not support such requests.
    async fn zero(&self, offset: u64, len: u64, no_hole: bool) -> DeviceResult<()> {
        let range = self.check(offset, len)?;
        let within = self.within(&range);
        if !self.has(TransmissionFlags::WRITE_ZEROES) || within.is_empty() {
            return self.write_zeros(range).await;
        }
        self.write_zeros(range.start..within.start).await?;
        self.write_zeros(within.end..range.end).await?;
        let command = Command::WriteZeroes { fua: false, no_hole, fast: false };
        self.for_range(command, within).await
    }

    fn within(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.next_multiple_of(self.block_size);
        start..(range.end / self.block_size * self.block_size).max(start)
    }

    async fn write_zeros(&self, range: Range<u64>) -> DeviceResult<()> {
        let zeros = Bytes::from(vec![0; to_usize((range.end - range.start).min(PREFERRED as u64))]);
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(zeros.len() as u64);
            self.write(at, vec![zeros.slice(..to_usize(len))]).await?;
            at += len;
        }
        Ok(())
    }

    async fn for_range(&self, command: Command, range: Range<u64>) -> DeviceResult<()> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(MAX_RANGE);
            let write = Arc::new(self.writes.begin(at..at + len).await);
            self.change(command, at, len, Vec::new(), Some(write)).await?;
            at += len;
        }
        Ok(())
    }

    async fn change(
        &self,
        command: Command,
        offset: u64,
        len: u64,
        data: Vec<Bytes>,
        write: Option<Arc<Write>>,
    ) -> DeviceResult<()> {
        match self.ask(command, offset, len, &data, write.as_ref()).await?.0 {
            Answer::Done => Ok(()),
            Answer::Data(_) | Answer::BlockStatus(_) => Err(unexpected()),
        }
    }

    /// Returns the status of a range, in at most `most` extents. For `most` = 1 the request asks for a single
    /// extent. Where the server reports no status, the range counts as data.
    async fn block_status(&self, offset: u64, len: u64, most: usize) -> DeviceResult<Vec<Extent>> {
        let range = self.check(offset, len)?;
        let all_data = || vec![Extent::new(offset, len, ExtentState::Data)];
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.connections.any().await?;
        if connection.allocation().is_none() {
            return Ok(all_data());
        }
        let around = self.around(&range);
        let asked = (around.end - around.start).min(MAX_RANGE);
        let command = Command::BlockStatus { one: most == 1 };
        let (answer, allocation) = self.ask(command, around.start, asked, &[], None).await?;
        let Answer::BlockStatus(contexts) = answer else { return Err(unexpected()) };
        let reported = contexts.into_iter().find(|status| Some(status.context) == allocation);
        let Some(status) = reported else { return Ok(all_data()) };
        let (mut extents, mut at): (Vec<Extent>, u64) = (Vec::new(), around.start);
        for found in status.extents {
            let end = at.saturating_add(found.length);
            let (from, to) = (at.max(range.start), end.min(range.end));
            let state = state(found.status);
            at = end;
            let is_full = extents.len() == most;
            match extents.last_mut() {
                _ if from >= to => {}
                Some(last) if last.state == state => last.len += to - from,
                _ if is_full => break,
                _ => extents.push(Extent::new(from, to - from, state)),
            }
        }
        Ok(if extents.is_empty() { all_data() } else { extents })
    }
}

/// Returns the extent state for a status of `base:allocation`.
const fn state(status: u32) -> ExtentState {
    match (status & Status::HOLE != 0, status & Status::ZERO != 0) {
        (true, true) => ExtentState::Deallocated,
        (false, true) => ExtentState::Anchored,
        (true, false) => ExtentState::Unknown,
        (false, false) => ExtentState::Data,
    }
}

/// Removes and returns the first `len` bytes of pages.
fn take(pages: &mut Vec<Bytes>, mut len: usize) -> Vec<Bytes> {
    let mut taken = Vec::new();
    let mut whole = 0;
    for page in pages.iter_mut() {
        let part = page.split_to(page.len().min(len));
        len -= part.len();
        whole += usize::from(page.is_empty());
        taken.push(part);
        if len == 0 {
            break;
        }
    }
    pages.drain(..whole);
    taken.retain(|page| !page.is_empty());
    taken
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

impl Device for NbdDevice {
    fn capacity(&self) -> u64 {
        self.export.size
    }

    fn limits(&self) -> DeviceLimits {
        let sizes = self.export.block_sizes;
        let mut limits = DeviceLimits::default();
        limits.block_size = sizes.minimum.max(1);
        limits.preferred_alignment = u64::from(sizes.preferred).next_multiple_of(self.block_size);
        limits.max_transfer = to_usize(self.max_payload);
        limits.preferred_transfer = PREFERRED.min(limits.max_transfer);
        limits.discard_granularity =
            self.has(TransmissionFlags::TRIM).then_some(limits.preferred_alignment);
        limits.has_fast_zeroes = self.has(TransmissionFlags::WRITE_ZEROES);
        limits.is_read_only = self.has(TransmissionFlags::READ_ONLY);
        limits.has_volatile_cache = self.has(TransmissionFlags::FLUSH);
        limits
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        (DEPTH / io_size.max(1)).clamp(4, 64) * self.connections.count()
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(self.read(offset, buffer))
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(self.changed_by(self.write(offset, pages)))
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(self.flush_all())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let range = self.check(offset, len)?;
            if !self.has(TransmissionFlags::TRIM) {
                return Err(DeviceErrorKind::Unsupported.into());
            }
            let trim = self.for_range(Command::Trim { fua: false }, self.within(&range));
            self.changed_by(trim).await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.changed_by(self.zero(offset, len, false)))
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(self.changed_by(self.zero(offset, len, true)))
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(self.block_status(offset, len, Extent::MAX_REPORTED))
    }

    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        Box::pin(async move { Ok(self.block_status(offset, len, 1).await?.first().copied()) })
    }
}
