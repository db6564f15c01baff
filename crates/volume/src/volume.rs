//! A volume as a device of bytes.
//!
//! Design: `docs/design/volumes.md`.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{
    BufferPool, Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, DeviceResult,
    Extent, check_range,
};

use crate::error::Error;
use crate::extents::interleave;
use crate::join::join_all;
use crate::member::Member;
use crate::stripe::{Chunk, Stripe};
use crate::unreported::{UnreportedLosses, is_loss};
use crate::whole_buffer::parts_of;

/// Separator between the texts of the members in [`leaves`](Device::leaves).
const BETWEEN_MEMBERS: &str = "; ";
/// Maximum preferred transfer, in bytes. A request of this length keeps each member that it reaches busy.
const MAX_PREFERRED: u64 = 16 << 20;

/// Several devices as one: chunks of its bytes lie on the members in turn (RAID-0). A volume has no
/// redundancy: if a member loses data, the volume has lost them.
///
/// A request becomes one request for each member that it touches, over all of that member's chunks in the
/// range. The exception is a read that spans several chunks: it becomes one read for each chunk, so that the
/// bytes of each chunk land in their place in the caller's buffer. The parts run concurrently. A request ends
/// when all of its parts have ended, also if one of them has failed; the error is that of the first member
/// that failed, and names the member. Dropping a request cancels all of its parts.
///
/// Writes of the same bytes reach each member in the order of their first polls. If two writes are polled at
/// the same time on two threads, the volume may hold chunks of each. To avoid this, wait for the first write
/// before the second one begins.
///
/// Clones are the same volume. Each clone has a separate handle of each member, so that
/// [`flush`](Device::flush) reports each loss to each clone. A flush covers all members, also if one fails.
/// If it fails with several errors, it reports a loss before any other error. If a flush that has found a
/// loss is dropped, the next flush reports the loss.
///
/// ```
/// use bytes::Bytes;
/// use iscsi_initiator::Initiator;
/// use iscsi_volume::device::Device as _;
/// use iscsi_volume::{Chunk, Member, Volume};
///
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut servers = Vec::new();
/// # let mut urls = Vec::new();
/// # for name in ["iqn.2026-01.org.example:one", "iqn.2026-01.org.example:two"] {
/// #     let target = TargetConfig::new(name, RamDisk::new(512, 4096));
/// #     let server = Server::start(Target::new(target)).await?;
/// #     urls.push(format!("iscsi://{}/{name}/0", server.address()));
/// #     servers.push(server);
/// # }
/// let initiator = Initiator::new("iqn.2026-01.org.example:host")?;
/// let mut members = Vec::new();
/// for url in &urls {
///     members.push(Member::new(url.as_str(), initiator.disk(url).await?));
/// }
/// let volume = Volume::new(Chunk::new(64 << 10)?, members)?;
/// assert_eq!(volume.capacity(), 2 * 4096 * 512);
/// // The bytes around the end of the first chunk lie on both units.
/// volume.write_at((64 << 10) - 3, vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")]).await?;
/// volume.flush().await?;
/// let [one, two] = [0, 1].map(|number| volume.members()[number].device());
/// assert_eq!(one.read_at((64 << 10) - 3, 3).await?, "one");
/// assert_eq!(two.read_at(0, 3).await?, "two");
/// # Ok(())
/// # }
/// ```
#[doc(alias("RAID", "stripe"))]
#[derive(Clone, Debug)]
pub struct Volume<D> {
    stripe: Stripe,
    /// Offset of the data on each member, in bytes.
    data_offset: u64,
    members: Vec<Member<D>>,
    /// Index of the first member that refuses writes; `None` if all accept them.
    read_only: Option<usize>,
    unreported: UnreportedLosses,
}

impl<D: Device> Volume<D> {
    /// Creates a volume whose data begin at the first byte of each member. The smallest member determines the
    /// capacity: bytes of other members beyond its last chunk stay unused.
    ///
    /// # Errors
    /// If there are not 2 to 64 members, a chunk is not a multiple of a member's block size, or a member has
    /// no room for a chunk.
    pub fn new(chunk: Chunk, members: Vec<Member<D>>) -> Result<Self, Error> {
        let least = members.iter().map(|member| member.device().capacity()).min();
        Self::with_data(chunk, 0..least.unwrap_or_default(), members)
    }

    /// Creates a volume whose data lie in the range `data` of each member.
    ///
    /// # Errors
    /// As [`new`](Self::new). Also if a member does not have all of the range, or the range does not begin at
    /// the start of a block.
    pub fn with_data(
        chunk: Chunk,
        data: Range<u64>,
        members: Vec<Member<D>>,
    ) -> Result<Self, Error> {
        let room = data.end.saturating_sub(data.start);
        let stripe = Stripe::new(chunk, members.len(), room)?;
        members.iter().try_for_each(|member| member.check(chunk.bytes(), &data))?;
        let read_only = members.iter().position(|member| member.device().limits().is_read_only);
        let unreported = UnreportedLosses::default();
        Ok(Self { stripe, data_offset: data.start, members, read_only, unreported })
    }

    /// Returns the layout of the volume.
    pub const fn stripe(&self) -> &Stripe {
        &self.stripe
    }

    /// Returns the offset of the data on each member, in bytes.
    pub const fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Returns the members, in their order.
    pub fn members(&self) -> &[Member<D>] {
        &self.members
    }

    /// Returns the volume with the device of each member replaced by the result of `change`. The checks of
    /// [`with_data`](Self::with_data) are not repeated.
    #[must_use]
    pub fn map_members(self, mut change: impl FnMut(D) -> D) -> Self {
        let members = self.members.into_iter().map(|member| member.map(&mut change)).collect();
        Self { members, ..self }
    }

    /// Returns the granularity of discards of the volume, in bytes: the largest granularity of the members, if
    /// each of them divides the chunk and the offset of the data. A divisor of the chunk is a power of two, as
    /// the chunk is, so the largest granularity is a multiple of the others.
    fn discard_granularity(&self) -> Option<u64> {
        let chunk = self.stripe.chunk().bytes();
        let mut largest = 1;
        for limits in self.limits_of_members() {
            let granule = limits.discard_granularity?;
            if !chunk.is_multiple_of(granule) || !self.data_offset.is_multiple_of(granule) {
                return None;
            }
            largest = granule.max(largest);
        }
        Some(largest)
    }

    /// Returns how many requests of `io_size` bytes keep each member busy. `of_member` returns this number
    /// for one member and its part of a request.
    fn depth(&self, io_size: usize, of_member: impl Fn(&D, usize) -> usize) -> usize {
        let chunk = usize::try_from(self.stripe.chunk().bytes()).unwrap_or(usize::MAX);
        let reached = io_size.div_ceil(chunk).clamp(1, self.members.len());
        let part = io_size.div_ceil(reached).max(1);
        let depths = self.members.iter().map(|member| of_member(member.device(), part));
        let deepest = depths.max().unwrap_or(1);
        deepest.saturating_mul(self.members.len()).div_ceil(reached).max(1)
    }

    fn limits_of_members(&self) -> impl Iterator<Item = DeviceLimits> {
        self.members.iter().map(|member| member.device().limits())
    }

    /// Checks that a range lies on the volume.
    fn check_range(&self, offset: u64, len: u64) -> DeviceResult<Range<u64>> {
        check_range(self.stripe.capacity(), offset, len)
    }

    /// Checks that a range lies on the volume and can be written: no member is read-only.
    fn check_writable(&self, offset: u64, len: u64) -> DeviceResult<Range<u64>> {
        let range = self.check_range(offset, len)?;
        match self.read_only.and_then(|number| self.members.get(number)) {
            None => Ok(range),
            Some(member) => Err(member.failed(DeviceErrorKind::ReadOnly.into())),
        }
    }

    /// Sends a request to each member that has a part of the range, or to every member without a range, and
    /// waits for all of them. Returns the error of the first member that failed.
    async fn of_each<'a>(
        &'a self,
        range: Option<&Range<u64>>,
        mut request: impl FnMut(&'a D, Range<u64>) -> DeviceFuture<'a, ()>,
    ) -> DeviceResult<()> {
        let parts = self.members.iter().enumerate().filter_map(|(number, member)| {
            let part = range.map(|range| self.stripe.part(range, number));
            if part.as_ref().is_some_and(Range::is_empty) {
                return None;
            }
            let part = part.unwrap_or_default();
            let part = part.start + self.data_offset..part.end + self.data_offset;
            Some((member, request(member.device(), part)))
        });
        let (members, parts): (Vec<_>, Vec<_>) = parts.unzip();
        let results = join_all(parts).await;
        for (member, result) in members.into_iter().zip(results) {
            result.map_err(|error| member.failed(error))?;
        }
        Ok(())
    }

    /// Sends a write, discard or zeroing of a range to each member that has a part of it. If a loss was
    /// reported meanwhile, the next flush reports it again.
    async fn change<'a>(
        &'a self,
        range: &Range<u64>,
        request: impl FnMut(&'a D, Range<u64>) -> DeviceFuture<'a, ()>,
    ) -> DeviceResult<()> {
        let told = self.unreported.reported_count();
        self.of_each(Some(range), request).await?;
        if self.unreported.reported_count() > told {
            // The loss may include a part of this change that had ended while other parts were in flight.
            self.unreported.keep(&overtaken());
        }
        Ok(())
    }

    /// Returns the extents of a range, from the extents of the members' parts; `ask` queries one member.
    async fn member_extents<'a>(
        &'a self,
        offset: u64,
        len: u64,
        ask: impl Fn(&'a D, u64, u64) -> DeviceFuture<'a, Vec<Extent>>,
    ) -> DeviceResult<Vec<Extent>> {
        let range = self.check_range(offset, len)?;
        let asked = self.members.iter().enumerate().map(|(number, member)| {
            let part = self.stripe.part(&range, number);
            let told = ask(member.device(), self.data_offset + part.start, part.end - part.start);
            let told: DeviceFuture<'_, Vec<Extent>> =
                Box::pin(async move { told.await.map_err(|error| member.failed(error)) });
            told
        });
        let told: DeviceResult<Vec<_>> = join_all(asked.collect()).await.into_iter().collect();
        Ok(interleave(&self.stripe, range, self.data_offset, told?))
    }

    /// Flushes every member, and waits for all of them. A loss is returned before any other error, because the
    /// caller may flush again after the other error, and the member would not report the loss again.
    async fn flush_members(&self) -> DeviceResult<()> {
        let flush = |member| -> DeviceFuture<'_, ()> { Box::pin(self.flush_member(member)) };
        let results = join_all(self.members.iter().map(flush).collect()).await;
        let mut errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        // No await follows, so a loss that is taken here reaches the caller.
        errors.extend(self.unreported.take());
        let loss = errors.iter().position(is_loss);
        match errors.into_iter().nth(loss.unwrap_or_default()) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    async fn flush_member(&self, member: &Member<D>) -> DeviceResult<()> {
        let flushed = member.device().flush().await.map_err(|error| member.failed(error));
        flushed.inspect_err(|error| self.unreported.keep(error))
    }

    /// Splits the pages of a write into a list of pages for each member.
    fn cut(&self, offset: u64, pages: Vec<Bytes>) -> Vec<Vec<Bytes>> {
        let mut parts = vec![Vec::new(); self.members.len()];
        let (mut at, mut piece) = (offset, self.stripe.place(offset));
        for mut page in pages {
            while !page.is_empty() {
                if piece.len == 0 {
                    piece = self.stripe.place(at);
                }
                let room = usize::try_from(piece.len).unwrap_or(usize::MAX);
                let part = page.split_to(page.len().min(room));
                at += part.len() as u64;
                piece.len -= part.len() as u64;
                if let Some(pages) = parts.get_mut(piece.member) {
                    pages.push(part);
                }
            }
        }
        parts
    }

    /// Reads a range of several chunks, each chunk into its part of the buffer.
    async fn fill(&self, range: Range<u64>, mut buffer: BytesMut) -> DeviceResult<BytesMut> {
        let read = |(member, offset, len)| -> DeviceFuture<'_, BytesMut> {
            Box::pin(self.read_piece(member, offset, buffer.split_to(len)))
        };
        join(self.pieces(range).map(read).collect()).await
    }

    /// Reads a range of several chunks into a buffer of the pool.
    async fn fill_with(
        &self,
        range: Range<u64>,
        buffers: Arc<dyn BufferPool>,
    ) -> DeviceResult<BytesMut> {
        let lens = self.pieces(range.clone()).map(|(_, _, len)| len).collect();
        let pieces = self.pieces(range).zip(parts_of(buffers, lens));
        let read = |((member, offset, len), part)| -> DeviceFuture<'_, BytesMut> {
            Box::pin(self.read_piece_with(member, offset, len, part))
        };
        join(pieces.map(read).collect()).await
    }

    /// Returns member, offset and length of each piece of a range.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (&Member<D>, u64, usize)> {
        self.stripe.pieces(range).filter_map(|piece| {
            let len = usize::try_from(piece.len).ok()?;
            Some((self.members.get(piece.member)?, piece.offset, len))
        })
    }

    /// Reads a range within one chunk.
    async fn read_piece(
        &self,
        member: &Member<D>,
        offset: u64,
        buffer: BytesMut,
    ) -> DeviceResult<BytesMut> {
        let len = buffer.len();
        let read = member.device().read_into(self.data_offset + offset, buffer).await;
        let read = read.and_then(|read| check_len(len, read.len()).map(|()| read));
        read.map_err(|error| member.failed(error))
    }

    /// Reads a range within one chunk into a buffer of the pool.
    async fn read_piece_with(
        &self,
        member: &Member<D>,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> DeviceResult<BytesMut> {
        let read = member.device().read_with(self.data_offset + offset, len, buffers).await;
        let read = read.and_then(|read| check_len(len, read.len()).map(|()| read));
        read.map_err(|error| member.failed(error))
    }

    /// Returns the member that holds all of a range, and the offset there; `None` if the range is empty or
    /// touches more than one chunk.
    fn only_member(&self, range: &Range<u64>) -> Option<(&Member<D>, u64)> {
        let piece = self.stripe.place(range.start);
        let is_within = !range.is_empty() && range.end - range.start <= piece.len;
        let member = self.members.get(piece.member).filter(|_| is_within)?;
        Some((member, piece.offset))
    }
}

/// Joins the parts of a read. They are consecutive parts of one buffer, so nothing is copied, except a part that
/// its member has read into another buffer.
async fn join(reads: Vec<DeviceFuture<'_, BytesMut>>) -> DeviceResult<BytesMut> {
    let mut whole = BytesMut::new();
    for part in join_all(reads).await {
        whole.unsplit(part?);
    }
    Ok(whole)
}

/// Returns the error of a change that was in flight when a flush reported a loss.
fn overtaken() -> DeviceError {
    let why = "a write that was in flight when a flush reported lost writes may be lost as well";
    DeviceError::new(DeviceErrorKind::LostWrites, why)
}

/// Checks that a member has returned as many bytes as were requested. Otherwise the bytes of the next part
/// would be in the wrong place.
fn check_len(asked: usize, given: usize) -> DeviceResult<()> {
    if asked == given {
        return Ok(());
    }
    let why = format!("a read of {asked} bytes gave {given}");
    Err(DeviceError::new(DeviceErrorKind::UnexpectedEnd, why))
}

impl<D: Device> Device for Volume<D> {
    fn capacity(&self) -> u64 {
        self.stripe.capacity()
    }

    /// Returns the abilities that all members have. The preferred transfer is the length that suits each
    /// member, in whole chunks, times the number of members, but at most 16 MiB.
    fn limits(&self) -> DeviceLimits {
        let (chunk, members) = (self.stripe.chunk().bytes(), self.members.len());
        let mut limits = DeviceLimits::default();
        limits.block_size = self.limits_of_members().map(|of| of.block_size).max().unwrap_or(1);
        limits.preferred_alignment = chunk;
        let least = |length: fn(&DeviceLimits) -> usize| {
            self.limits_of_members().map(|of| length(&of)).min().unwrap_or(1)
        };
        let preferred = (least(|of| of.preferred_transfer) as u64).max(chunk);
        let preferred = (preferred / chunk * chunk).saturating_mul(members as u64);
        limits.preferred_transfer =
            usize::try_from(preferred.min(MAX_PREFERRED)).unwrap_or(usize::MAX);
        limits.max_transfer = least(|of| of.max_transfer).saturating_mul(members);
        limits.discard_granularity = self.discard_granularity();
        limits.has_fast_zeroes = self.limits_of_members().all(|of| of.has_fast_zeroes);
        limits.is_read_only = self.read_only.is_some();
        limits.has_volatile_cache = self.limits_of_members().any(|of| of.has_volatile_cache);
        limits
    }

    /// Returns the number of requests that keeps each member busy. A shorter request reaches fewer members, so
    /// more requests are needed.
    fn queue_depth(&self, io_size: usize) -> usize {
        self.depth(io_size, |member, part| member.queue_depth(part))
    }

    fn read_depth(&self, io_size: usize) -> usize {
        self.depth(io_size, |member, part| member.read_depth(part))
    }

    /// Returns the texts of all members in one line, in their order; `None` if any member returns `None`.
    fn leaves(&self) -> Option<String> {
        let left = self.members.iter().map(|member| member.device().leaves());
        Some(left.collect::<Option<Vec<_>>>()?.join(BETWEEN_MEMBERS))
    }

    fn end_left<'a>(&'a self, left: &'a str) -> DeviceFuture<'a, ()> {
        Box::pin(async move {
            if left.split(BETWEEN_MEMBERS).count() != self.members.len() {
                let why = "the sessions left are not of these members";
                return Err(DeviceError::new(DeviceErrorKind::Protocol, why));
            }
            let mut left = left.split(BETWEEN_MEMBERS);
            self.of_each(None, |device, _| device.end_left(left.next().unwrap_or_default())).await
        })
    }

    fn is_settled(&self) -> bool {
        self.members.iter().all(|member| member.device().is_settled())
    }

    fn attentions(&self) -> u64 {
        let counts = self.members.iter().map(|member| member.device().attentions());
        counts.fold(0, u64::wrapping_add)
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            let range = self.check_range(offset, buffer.len() as u64)?;
            if range.is_empty() {
                return Ok(buffer);
            }
            match self.only_member(&range) {
                Some((member, at)) => self.read_piece(member, at, buffer).await,
                None => self.fill(range, buffer).await,
            }
        })
    }

    fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            let range = self.check_range(offset, len as u64)?;
            match self.only_member(&range) {
                Some((member, at)) => self.read_piece_with(member, at, len, buffers).await,
                None => self.fill_with(range, buffers).await,
            }
        })
    }

    fn read_at(&self, offset: u64, len: usize) -> DeviceFuture<'_, Bytes> {
        Box::pin(async move {
            let range = self.check_range(offset, len as u64)?;
            let Some((member, at)) = self.only_member(&range) else {
                return Ok(self.fill(range, BytesMut::zeroed(len)).await?.freeze());
            };
            let read = member.device().read_at(self.data_offset + at, len).await;
            let read = read.and_then(|read| check_len(len, read.len()).map(|()| read));
            read.map_err(|error| member.failed(error))
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let len: usize = pages.iter().map(Bytes::len).sum();
            let range = self.check_writable(offset, len as u64)?;
            if let Some((member, at)) = self.only_member(&range) {
                let written = member.device().write_at(self.data_offset + at, pages).await;
                return written.map_err(|error| member.failed(error));
            }
            let mut parts = self.cut(offset, pages).into_iter();
            let mut parts = parts.by_ref().filter(|pages| !pages.is_empty());
            // The parts and the calls of this closure have the same order: that of the members.
            self.change(&range, |device, part| {
                device.write_at(part.start, parts.next().unwrap_or_default())
            })
            .await
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(self.flush_members())
    }

    fn confirm(&self) -> DeviceFuture<'_, ()> {
        Box::pin(self.of_each(None, |device, _| device.confirm()))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let range = self.check_writable(offset, len)?;
            if self.discard_granularity().is_none() {
                return Err(DeviceError::unsupported("discarding"));
            }
            self.change(&range, |device, part| device.discard(part.start, part.end - part.start))
                .await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let range = self.check_writable(offset, len)?;
            self.change(&range, |device, part| {
                device.write_zeroes(part.start, part.end - part.start)
            })
            .await
        })
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            let range = self.check_writable(offset, len)?;
            self.change(&range, |device, part| {
                device.write_allocated_zeroes(part.start, part.end - part.start)
            })
            .await
        })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        Box::pin(self.member_extents(offset, len, |device, start, len| device.extents(start, len)))
    }

    /// Returns the first extent. Each member is queried for one extent only, whether or not it holds the
    /// first bytes.
    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        Box::pin(async move {
            Ok(self.member_extents(offset, len, first_alone).await?.first().copied())
        })
    }
}

/// Returns the first extent of a device as a list, which is empty for an empty range.
fn first_alone<D: Device>(device: &D, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
    Box::pin(async move { Ok(device.first_extent(offset, len).await?.into_iter().collect()) })
}
