//! PDUs in wire order, as a `Buf` for one vectored system call.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use iscsi_pdu::{Bhs, Crc32c, Digest, Header, Itt, padding_of};

use crate::short_queue::ShortQueue;
use crate::task::payload::{Payload, PayloadSlice};

/// Bytes to keep ready: enough to keep a long link busy with one system call, and few enough that a NOP-Out
/// does not wait long behind them.
const READY_BYTES: usize = 1024 * 1024;
/// The most slices that one system call takes (IOV_MAX on Linux).
const MAX_SLICES: usize = 1024;

/// The digests in force on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digests {
    pub(crate) header: Digest,
    pub(crate) data: Digest,
}

/// Frames that have their sequence numbers and wait for the socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    frames: ShortQueue<Frame>,
    /// Bytes not yet taken by the socket.
    bytes: usize,
}

/// One PDU that waits for the socket.
#[derive(Debug)]
struct Frame {
    header: Head,
    payload: PayloadSlice,
    trailer: Trailer,
    /// The task whose Data-Out this is. The frame may be withdrawn while the socket has taken none of its
    /// bytes.
    data_of: Option<Itt>,
    begun: bool,
}

/// BHS, AHS and header digest.
#[derive(Debug)]
enum Head {
    Short { bytes: [u8; Bhs::LEN + 4], at: u8, len: u8 },
    Long(Bytes),
}

/// Padding and data digest.
#[derive(Debug, Default)]
struct Trailer {
    bytes: [u8; 7],
    at: u8,
    len: u8,
}

impl Outbox {
    /// Returns whether enough is queued for the next system call.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes >= READY_BYTES
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a PDU; `payload` is its data segment.
    pub(crate) fn push(&mut self, header: Header, payload: PayloadSlice, digests: Digests) {
        self.push_frame(header, payload, digests, None);
    }

    /// Appends a Data-Out of a task. It can be withdrawn while the socket has taken none of its bytes.
    pub(crate) fn push_data_out(
        &mut self,
        itt: Itt,
        bhs: Bhs,
        payload: PayloadSlice,
        digests: Digests,
    ) {
        self.push_frame(bhs.into(), payload, digests, Some(itt));
    }

    fn push_frame(
        &mut self,
        mut header: Header,
        payload: PayloadSlice,
        digests: Digests,
        data_of: Option<Itt>,
    ) {
        header.bhs.set_data_len(payload.remaining());
        let head = Head::new(&header, digests.header);
        let trailer = Trailer::new(&payload, digests.data);
        self.bytes += head.remaining() + payload.remaining() + trailer.remaining();
        self.frames.push_back(Frame { header: head, payload, trailer, data_of, begun: false });
    }

    /// Withdraws the Data-Outs of a task of which the socket has taken no byte, and returns whether there
    /// were any.
    pub(crate) fn withdraw_data_of(&mut self, itt: Itt) -> bool {
        let before = self.bytes;
        let mut bytes = 0;
        self.frames.retain(|frame| {
            let keep = frame.begun || frame.data_of != Some(itt);
            bytes += if keep { frame.remaining() } else { 0 };
            keep
        });
        self.bytes = bytes;
        bytes != before
    }
}

impl Buf for Outbox {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.frames.front().map_or(&[], |frame| frame.pieces().next().unwrap_or_default())
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.frames.iter().flat_map(Frame::pieces);
        let mut filled = 0;
        for (slot, piece) in dst.iter_mut().take(MAX_SLICES).zip(pieces) {
            *slot = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        let mut count = count.min(self.bytes);
        self.bytes -= count;
        while let Some(frame) = self.frames.front_mut() {
            let left = frame.remaining();
            if count < left {
                return frame.advance(count);
            }
            count -= left;
            self.frames.pop_front();
        }
    }
}

impl Frame {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.header.chunk())
            .chain(self.payload.pieces())
            .chain(std::iter::once(self.trailer.chunk()))
            .filter(|piece| !piece.is_empty())
    }

    fn remaining(&self) -> usize {
        self.header.remaining() + self.payload.remaining() + self.trailer.remaining()
    }

    fn advance(&mut self, count: usize) {
        self.begun |= count > 0;
        let head = count.min(self.header.remaining());
        self.header.advance(head);
        let data = (count - head).min(self.payload.remaining());
        self.payload.advance(data);
        self.trailer.advance(count - head - data);
    }
}

impl Head {
    fn new(header: &Header, digest: Digest) -> Self {
        let crc = match digest {
            Digest::None => None,
            Digest::Crc32c => {
                let mut crc = Crc32c::new();
                crc.update(header.bhs.as_bytes());
                crc.update(&header.ahs);
                Some(crc.finish())
            }
        };
        let crc = crc.as_ref().map_or(&[][..], |crc| &crc[..]);
        if header.ahs.is_empty() {
            let mut bytes = [0; Bhs::LEN + 4];
            let (bhs, rest) = bytes.split_at_mut(Bhs::LEN);
            bhs.copy_from_slice(header.bhs.as_bytes());
            for (byte, crc) in rest.iter_mut().zip(crc) {
                *byte = *crc;
            }
            let len = if crc.is_empty() { 48 } else { 52 };
            return Self::Short { bytes, at: 0, len };
        }
        Self::Long([header.bhs.as_bytes().as_slice(), &header.ahs, crc].concat().into())
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Short { bytes, at, len } => {
                bytes.get(usize::from(*at)..usize::from(*len)).unwrap_or_default()
            }
            Self::Long(bytes) => bytes,
        }
    }

    fn remaining(&self) -> usize {
        self.chunk().len()
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Short { at, len, .. } => {
                *at = at.saturating_add(u8::try_from(count).unwrap_or(u8::MAX)).min(*len);
            }
            Self::Long(bytes) => bytes.advance(count),
        }
    }
}

impl Trailer {
    fn new(payload: &PayloadSlice, digest: Digest) -> Self {
        let len = payload.remaining();
        if len == 0 {
            return Self::default();
        }
        let padding = padding_of(len);
        let mut trailer = Self::default();
        let mut used = padding;
        if digest == Digest::Crc32c {
            let mut crc = Crc32c::new();
            payload.pieces().for_each(|piece| crc.update(piece));
            crc.update(trailer.bytes.get(..padding).unwrap_or_default());
            for (byte, crc) in trailer.bytes.iter_mut().skip(padding).zip(crc.finish()) {
                *byte = crc;
            }
            used += 4;
        }
        trailer.len = u8::try_from(used).unwrap_or_default();
        trailer
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.get(usize::from(self.at)..usize::from(self.len)).unwrap_or_default()
    }

    fn remaining(&self) -> usize {
        usize::from(self.len - self.at)
    }

    fn advance(&mut self, count: usize) {
        self.at = self.at.saturating_add(u8::try_from(count).unwrap_or(u8::MAX)).min(self.len);
    }
}

/// Returns `bytes` as a data segment.
pub(crate) fn whole(bytes: Bytes) -> PayloadSlice {
    let len = bytes.len();
    Payload::from(bytes).slice(0, len)
}
