//! The data that a command moves, with their source or sink.

use bytes::Bytes;

use crate::convert::{clamp32, index};
use crate::disk::RamDisk;

/// The data that a command moves.
#[derive(Debug)]
pub(crate) enum Work {
    /// No data; the status is GOOD.
    Done,
    /// Data to the initiator.
    Send(Source),
    /// Data from the initiator, with their length by the CDB, in bytes.
    Take(Sink, u64),
}

/// The source of read data.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Bytes(Bytes),
    /// A range of the disk. `inverted` is the offset of a byte that is sent wrong.
    Disk {
        disk: RamDisk,
        offset: u64,
        length: u64,
        inverted: Option<u64>,
    },
}

/// The destination of write data.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A range of the disk. `inverted` is the offset of a byte that is stored wrong.
    Disk {
        disk: RamDisk,
        offset: u64,
        inverted: Option<u64>,
    },
    /// Holds the data until the command is executed, and then writes them to `sink`.
    Late {
        sink: Box<Self>,
        data: Vec<u8>,
    },
    Parameters(Vec<u8>),
    Discard,
}

impl Work {
    /// Inverts the first byte of this block in the data that are moved.
    pub(crate) fn with_inverted(mut self, block: Option<u64>) -> Self {
        if let (
            Some(block),
            Self::Send(Source::Disk { disk, offset, inverted, .. })
            | Self::Take(Sink::Disk { disk, offset, inverted }, _),
        ) = (block, &mut self)
        {
            *inverted = (block * u64::from(disk.block_size())).checked_sub(*offset);
        }
        self
    }
}

impl Source {
    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Disk { length, .. } => *length,
        }
    }

    /// Reads the data now, so that later writes do not change the data that are sent.
    pub(crate) fn fixed(self) -> Self {
        Self::Bytes(self.read(0, clamp32(self.length())))
    }

    /// Returns `length` bytes of the data from `from`.
    pub(crate) fn read(&self, from: u32, length: u32) -> Bytes {
        let (start, end) = (from as usize, from as usize + length as usize);
        match self {
            Self::Bytes(bytes) => bytes.slice(start.min(bytes.len())..end.min(bytes.len())),
            Self::Disk { disk, offset, inverted, .. } => {
                let data = disk.read_padded(offset + u64::from(from), length as usize);
                let Some(wrong) = place_of(*inverted, from, data.len()) else { return data };
                let mut data = data.to_vec();
                data[wrong] = !data[wrong];
                data.into()
            }
        }
    }
}

impl Sink {
    /// Makes a sink of the disk hold the data until the command is executed; other sinks hold their data
    /// anyway, or discard them.
    pub(crate) fn put_off(self) -> Self {
        match self {
            Self::Disk { .. } => Self::Late { sink: Box::new(self), data: Vec::new() },
            Self::Late { .. } | Self::Parameters(_) | Self::Discard => self,
        }
    }

    /// Writes the held data to the disk; does nothing for other sinks.
    pub(crate) fn execute(&mut self) {
        if let Self::Late { sink, data } = self {
            sink.write(0, data);
        }
    }

    /// Writes the blocks of the held data for which `is_done` returns `true`.
    pub(crate) fn execute_part(&mut self, mut is_done: impl FnMut(&u64) -> bool) {
        let Self::Late { sink, data } = self else { return };
        let Self::Disk { disk, offset, .. } = &mut **sink else { return };
        let size = disk.block_size() as usize;
        let first = *offset / u64::from(disk.block_size());
        for (lba, block) in (first..).zip(data.chunks(size)) {
            if is_done(&lba) {
                disk.write_cached(lba * size as u64, block);
            }
        }
    }

    /// Stores a piece of the data.
    pub(crate) fn write(&mut self, at: u32, data: &[u8]) {
        match self {
            Self::Disk { disk, offset, inverted } => {
                let start = *offset + u64::from(at);
                disk.write_cached(start, data);
                if let Some(wrong) = place_of(*inverted, at, data.len()) {
                    disk.write_cached(start + wrong as u64, &[!data[wrong]]);
                }
            }
            Self::Late { data: bytes, .. } | Self::Parameters(bytes) => {
                let end = at as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(data);
            }
            Self::Discard => {}
        }
    }

    /// Returns the parameter list that arrived; empty for a disk.
    pub(crate) fn parameters(&self) -> &[u8] {
        match self {
            Self::Parameters(bytes) => bytes,
            Self::Disk { .. } | Self::Late { .. } | Self::Discard => &[],
        }
    }
}

/// Returns read data, cut at the allocation length of the CDB.
pub(super) fn answer(mut data: Vec<u8>, allocation: u64) -> Work {
    data.truncate(index(allocation));
    Work::Send(Source::Bytes(Bytes::from(data)))
}

/// Returns the index of the byte at `offset` in a piece of `length` bytes from `start`.
fn place_of(offset: Option<u64>, start: u32, length: usize) -> Option<usize> {
    let place = index(offset?.checked_sub(u64::from(start))?);
    (place < length).then_some(place)
}
