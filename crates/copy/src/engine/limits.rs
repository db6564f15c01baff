//! Caches the limits of the source and the destination.

use iscsi_block_device::DeviceLimits;

use crate::ends::destination::Destination;
use crate::ends::source::Source;

/// The limits of both devices, as last queried. The query makes a disk check all of its sessions, so it is
/// not made for each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The limits of the source; the defaults for a stream.
    pub(super) source: DeviceLimits,
    pub(super) destination: DeviceLimits,
}

impl Limits {
    /// Queries both devices.
    pub(super) fn of(source: &Source, destination: &Destination) -> Self {
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
