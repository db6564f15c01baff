//! The source and the destination of a copy, with their limits.

use iscsi_block_device::DeviceLimits;

use crate::ends::destination::Destination;
use crate::ends::source::Source;

/// Largest request that writes zeros without data, bytes.
const MAX_ZEROS: u64 = 256 << 20;

#[derive(Debug)]
pub(super) struct Ends {
    pub(super) source: Source,
    pub(super) destination: Destination,
    pub(super) limits: Limits,
    /// Whether the destination has its final length, as far as that length is known.
    pub(super) is_sized: bool,
}

/// The limits of both devices, as last queried. The query makes a disk check all of its sessions, so it is
/// not made for each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The limits of the source; the defaults for a stream.
    pub(super) source: DeviceLimits,
    pub(super) destination: DeviceLimits,
}

impl Ends {
    pub(super) fn new(source: Source, destination: Destination) -> Self {
        let limits = Limits::of(&source, &destination);
        Self { source, destination, limits, is_sized: false }
    }

    /// Queries the limits of both devices again.
    pub(super) fn refresh(&mut self) {
        self.limits = Limits::of(&self.source, &self.destination);
    }

    /// Returns the length of the source; `None` for a stream.
    pub(super) fn source_len(&self) -> Option<u64> {
        self.source.device_ref().map(|device| device.capacity())
    }

    pub(super) const fn is_stream(&self) -> bool {
        self.source.device_ref().is_none()
    }

    /// Returns the block size of the destination.
    pub(super) fn block(&self) -> usize {
        usize::try_from(self.limits.destination.block_size).unwrap_or(1).max(1)
    }

    /// Returns whether the destination is a file whose final length is known.
    pub(super) const fn awaits_length(&self) -> bool {
        self.destination.is_file() && !self.is_stream()
    }

    /// Returns whether the destination writes zeros without data.
    pub(super) const fn makes_zeros(&self) -> bool {
        !self.destination.is_sequential() && self.limits.destination.has_fast_zeroes
    }

    /// Returns the largest length of a request that writes zeros: `io_size` bytes if the zeros are sent as
    /// data.
    pub(super) const fn zeros_at_once(&self, io_size: usize) -> u64 {
        if self.makes_zeros() { MAX_ZEROS } else { io_size as u64 }
    }
}

impl Limits {
    /// Queries both devices.
    fn of(source: &Source, destination: &Destination) -> Self {
        let source = source.device_ref().map(|device| device.limits()).unwrap_or_default();
        Self { source, destination: destination.limits() }
    }

    /// Returns the length of a request, bytes: `wanted`, or else the length that the destination prefers, or
    /// that the source prefers if only the source has blocks. The result is a multiple of both block sizes.
    pub(super) fn io_size(&self, wanted: Option<usize>) -> usize {
        let Self { source, destination } = self;
        let preferring = if destination.block_size > 1 { destination } else { source };
        let wanted = wanted.unwrap_or(preferring.preferred_transfer);
        let block = source.block_size.max(destination.block_size).max(1);
        wanted.max(1).next_multiple_of(usize::try_from(block).unwrap_or(1))
    }
}
