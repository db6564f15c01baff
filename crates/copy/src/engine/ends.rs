//! The two ends of a copy, with what they want and can do.

use super::limits::Limits;
use crate::ends::destination::Destination;
use crate::ends::source::Source;

/// One request that makes zeros has so many bytes at most.
const MAX_ZEROS: u64 = 256 << 20;

/// Where the bytes come from and go to.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) source: Source,
    pub(super) destination: Destination,
    pub(super) limits: Limits,
    /// The destination is as long as it will be, as far as that is known.
    pub(super) is_sized: bool,
}

impl Ends {
    pub(super) fn new(source: Source, destination: Destination) -> Self {
        let limits = Limits::of(&source, &destination);
        Self { source, destination, limits, is_sized: false }
    }

    /// Asks both for their limits again.
    pub(super) fn refresh(&mut self) {
        self.limits = Limits::of(&self.source, &self.destination);
    }

    /// The length of the source; `None` for a stream.
    pub(super) fn source_len(&self) -> Option<u64> {
        self.source.device_ref().map(|device| device.capacity())
    }

    pub(super) const fn is_stream(&self) -> bool {
        self.source.device_ref().is_none()
    }

    /// The length of the blocks of the destination.
    pub(super) fn block(&self) -> usize {
        usize::try_from(self.limits.destination.block_size).unwrap_or(1).max(1)
    }

    /// Whether the destination is a file, and it is known how long that will be.
    pub(super) const fn awaits_length(&self) -> bool {
        self.destination.is_file() && !self.is_stream()
    }

    /// Whether the destination makes zeros by itself.
    pub(super) const fn makes_zeros(&self) -> bool {
        !self.destination.is_sequential() && self.limits.destination.has_fast_zeroes
    }

    /// The length of a request that makes zeros, where one with data has `io_size` bytes.
    pub(super) const fn zeros_at_once(&self, io_size: usize) -> u64 {
        if self.makes_zeros() { MAX_ZEROS } else { io_size as u64 }
    }
}
