//! The memory for the next bytes from the target, and the PDUs that the bytes form.

use std::io::IoSliceMut;

use bytes::{Bytes, BytesMut};
use iscsi_pdu::{
    Bhs, Crc32c, DecodeError, Digest, FrameLayout, Header, Itt, TargetOpcode, TargetPdu,
};

use super::outbox::Digests;
use super::read_ahead::ReadAhead;
use crate::error::ProtocolError;
use crate::task::set::TaskSet;

/// Length from which a data segment counts as long, bytes. During and after a long segment, only
/// [`NEXT_HEADER`] bytes are read ahead: another long segment usually follows, and the part of it that is
/// read ahead must be copied.
const LONG_SEGMENT: usize = 16 * 1024;

/// Bytes that are read ahead during and after a long data segment: the next header, and a few short PDUs.
const NEXT_HEADER: usize = 512;

/// Cuts the incoming stream into PDUs, at whatever byte boundaries it arrives.
///
/// The rest of a Data-In is read directly into the buffer of its task; everything else passes through the
/// read-ahead buffer.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The read-ahead buffer. It is allocated when it is needed, unless the caller lends one.
    buffer: Option<ReadAhead>,
    /// Offset in `buffer` of the first byte that was not processed yet.
    start: usize,
    /// Offset in `buffer` of the end of the received bytes.
    end: usize,
    /// Received bytes that `buffer` still held when the caller took `buffer` back.
    kept: Vec<u8>,
    /// Length of the destination that was offered to the last read, bytes.
    offered: usize,
    segment: Option<Segment>,
    /// Whether the data segment that is arriving, or else the last one, has at least `LONG_SEGMENT` bytes.
    is_long: bool,
}

/// A PDU whose header is complete and whose data segment is arriving.
#[derive(Debug)]
struct Segment {
    pdu: TargetPdu,
    layout: FrameLayout,
    destination: Destination,
    landed: usize,
}

/// Destinations of a data segment.
#[derive(Debug)]
pub(crate) enum Destination {
    /// Into the buffer of a read, at this offset.
    Read { itt: Itt, offset: usize },
    /// Separate memory, for text, sense data and the like.
    Own(BytesMut),
    /// Discarded, because its task was aborted, possibly while the segment arrived.
    Discard,
}

/// A complete PDU.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) pdu: TargetPdu,
    /// The data segment. It is empty if the data was stored in the buffer of a read, or discarded.
    pub(crate) data: Bytes,
    /// Length of the data segment, wherever it was stored, bytes.
    pub(crate) data_len: usize,
    /// Whether the data digest matches; also `true` if there is no digest, or the data was discarded.
    pub(crate) intact: bool,
    /// Whether the data was discarded, because its task was aborted.
    pub(crate) discarded: bool,
}

impl Inbox {
    /// Returns the destinations of the next bytes, in order: the rest of a data segment, then the read-ahead
    /// buffer.
    pub(crate) fn slices<'a>(&'a mut self, tasks: &'a mut TaskSet) -> [IoSliceMut<'a>; 2] {
        if self.buffer.is_none() {
            self.lend(ReadAhead::default());
        }
        self.compact();
        let is_arriving = self.segment.is_some();
        let rest = self.segment.as_mut().map_or(&mut [][..], |segment| segment.rest(tasks));
        self.offered = rest.len();
        // Data to discard pass through the read-ahead buffer and are not copied, so the next read may fill
        // the whole buffer.
        let is_dropped = is_arriving && rest.is_empty();
        let is_short = self.is_long && !is_dropped;
        let end = if is_short { self.end + NEXT_HEADER } else { ReadAhead::LEN };
        let buffer = self.buffer.as_mut().map_or(&mut [][..], ReadAhead::bytes_mut);
        let ahead = buffer.get_mut(self.end..end.min(ReadAhead::LEN)).unwrap_or_default();
        [IoSliceMut::new(rest), IoSliceMut::new(ahead)]
    }

    /// Returns the number of bytes of the arriving data segment that are still missing; 0 if the segment is
    /// discarded.
    pub(crate) fn rest(&mut self, tasks: &mut TaskSet) -> usize {
        self.segment.as_mut().map_or(0, |segment| segment.rest(tasks).len())
    }

    /// Uses `buffer` to read ahead, instead of an allocated buffer.
    pub(crate) fn lend(&mut self, mut buffer: ReadAhead) {
        drop(self.reclaim());
        if let Some(to) = buffer.bytes_mut().get_mut(..self.kept.len()) {
            to.copy_from_slice(&self.kept);
        }
        self.kept.clear();
        self.buffer = Some(buffer);
    }

    /// Returns the read-ahead buffer. Its unused input is kept: at most a part of a header, or of the padding
    /// and digest after a data segment.
    pub(crate) fn reclaim(&mut self) -> Option<ReadAhead> {
        let buffer = self.buffer.take()?;
        self.kept.extend_from_slice(buffer.bytes().get(self.start..self.end).unwrap_or_default());
        (self.start, self.end) = (0, self.kept.len());
        Some(buffer)
    }

    /// Processes `count` bytes that were read into the slices.
    pub(crate) fn filled(&mut self, count: usize) {
        let direct = count.min(self.offered);
        if let Some(segment) = &mut self.segment {
            segment.landed += direct;
        }
        if self.buffer.is_some() {
            self.end = (self.end + count - direct).min(ReadAhead::LEN);
        }
        self.offered = 0;
    }

    /// Returns the next complete PDU. `admit` checks each header before any byte of its data is stored.
    pub(crate) fn next(
        &mut self,
        tasks: &mut TaskSet,
        digests: Digests,
        admit: impl FnOnce(&TargetPdu, usize, &TaskSet) -> Result<Destination, ProtocolError>,
    ) -> Result<Option<Received>, ProtocolError> {
        if self.segment.is_none() {
            let Some((header, layout)) = self.next_header(digests)? else { return Ok(None) };
            let pdu = TargetPdu::decode(&header)?;
            let destination = admit(&pdu, layout.data_len, tasks)?;
            self.is_long = layout.data_len >= LONG_SEGMENT;
            self.segment = Some(Segment { pdu, layout, destination, landed: 0 });
        }
        self.move_read_ahead(tasks);
        let unread = self.end - self.start;
        let complete = |segment: &mut Segment| {
            segment.landed == segment.layout.data_len && segment.layout.trailer_len() <= unread
        };
        let Some(mut segment) = self.segment.take_if(complete) else { return Ok(None) };
        let trailer = self.take(segment.layout.trailer_len()).unwrap_or_default();
        let intact = segment.check(trailer, tasks);
        Ok(Some(segment.into_received(intact)))
    }

    fn unread(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().map_or(&self.kept[..], ReadAhead::bytes);
        buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Takes the next `len` bytes of the read-ahead buffer; returns `None` while it holds fewer.
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let range = self.start..self.start + len;
        if range.end > self.end {
            return None;
        }
        self.start = range.end;
        self.buffer.as_ref()?.bytes().get(range)
    }

    fn next_header(
        &mut self,
        digests: Digests,
    ) -> Result<Option<(Header, FrameLayout)>, ProtocolError> {
        let Some(bhs) = self.unread().first_chunk::<{ Bhs::LEN }>() else { return Ok(None) };
        let bhs = Bhs::from_bytes(*bhs);
        // Do not wait for the rest of an unknown PDU: the lengths in its header are not reliable.
        if digests.header == Digest::None && TargetOpcode::from_wire(bhs.opcode()).is_none() {
            return Err(DecodeError::Opcode(bhs.opcode()).into());
        }
        let layout = FrameLayout::of(&bhs, digests.header, digests.data);
        let header_len = Bhs::LEN + layout.ahs_len;
        let Some(bytes) = self.take(header_len + layout.header_digest_len) else { return Ok(None) };
        let (header, digest) = bytes.split_at_checked(header_len).unwrap_or_default();
        if digests.header == Digest::Crc32c && checksum([header]) != digest {
            return Err(ProtocolError::HeaderDigest);
        }
        let ahs = header.get(Bhs::LEN..).filter(|ahs| !ahs.is_empty());
        let ahs = ahs.map(Bytes::copy_from_slice).unwrap_or_default();
        Ok(Some((Header { bhs, ahs }, layout)))
    }

    /// Moves the part of a data segment that was read ahead to its destination.
    fn move_read_ahead(&mut self, tasks: &mut TaskSet) {
        let Some(segment) = &mut self.segment else { return };
        let left = segment.layout.data_len - segment.landed;
        let Some(buffer) = &self.buffer else { return };
        let unread = buffer.bytes().get(self.start..self.end).unwrap_or_default();
        let moved = left.min(unread.len());
        // If the task has ended since the header arrived, there is no destination, and the bytes are dropped.
        let rest = segment.rest(tasks);
        let kept = moved.min(rest.len());
        if let (Some(to), Some(from)) = (rest.get_mut(..kept), unread.get(..kept)) {
            to.copy_from_slice(from);
        }
        segment.landed += moved;
        self.start += moved;
    }

    /// Moves the unused input to the start of the read-ahead buffer. It is short: at most a part of a header,
    /// or of the padding and digest after a data segment.
    fn compact(&mut self) {
        if let Some(buffer) = &mut self.buffer {
            buffer.bytes_mut().copy_within(self.start..self.end, 0);
        }
        self.end -= self.start;
        self.start = 0;
    }
}

impl Segment {
    /// Returns the memory for the rest of the data segment; empty if the segment is discarded.
    fn rest<'a>(&'a mut self, tasks: &'a mut TaskSet) -> &'a mut [u8] {
        let (landed, left) = (self.landed, self.layout.data_len - self.landed);
        match &mut self.destination {
            Destination::Own(own) => own.get_mut(landed..).unwrap_or_default(),
            Destination::Read { itt, offset } => buffer_of(tasks, *itt, *offset + landed, left),
            Destination::Discard => &mut [],
        }
    }

    /// Returns whether the data digest matches. Also returns `true` if there is no digest, or the data was
    /// discarded.
    fn check(&mut self, trailer: &[u8], tasks: &mut TaskSet) -> bool {
        if self.layout.data_digest_len == 0 {
            return true;
        }
        let (padding, digest) =
            trailer.split_at_checked(self.layout.padding_len).unwrap_or_default();
        let data: &[u8] = match &self.destination {
            Destination::Own(own) => own,
            // The task has ended, and the data that arrived later was discarded, so the digest cannot be
            // checked.
            Destination::Read { itt, .. } if tasks.get(*itt).is_none() => {
                self.destination = Destination::Discard;
                return true;
            }
            Destination::Read { itt, offset } => {
                buffer_of(tasks, *itt, *offset, self.layout.data_len)
            }
            Destination::Discard => return true,
        };
        checksum([data, padding]) == digest
    }

    fn into_received(self, intact: bool) -> Received {
        let discarded = matches!(self.destination, Destination::Discard);
        let data = match self.destination {
            Destination::Own(own) => own.freeze(),
            Destination::Read { .. } | Destination::Discard => Bytes::new(),
        };
        Received { pdu: self.pdu, data, data_len: self.layout.data_len, intact, discarded }
    }
}

/// Returns `len` bytes at `offset` of a read's buffer; an empty slice if the task has ended.
fn buffer_of(tasks: &mut TaskSet, itt: Itt, offset: usize, len: usize) -> &mut [u8] {
    tasks
        .get_mut(itt)
        .and_then(|task| task.as_scsi_mut()?.read.as_mut())
        .map_or(&mut [], |read| read.destination(offset, len))
}

fn checksum<const N: usize>(parts: [&[u8]; N]) -> [u8; 4] {
    let mut crc = Crc32c::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.finish()
}
