//! The limits of a copy's devices.

use iscsi_block_device::DeviceLimits;

use crate::ends::destination::Destination;
use crate::ends::source::Source;

/// The limits of both devices, as of the last question. A disk looks at all of its sessions for the answer,
/// so that it is not asked for each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The default limits for a stream.
    pub(super) source: DeviceLimits,
    pub(super) destination: DeviceLimits,
}

impl Limits {
    /// Asks both devices.
    pub(super) fn of(source: &Source, destination: &Destination) -> Self {
        let source = source.device_ref().map(|device| device.limits()).unwrap_or_default();
        Self { source, destination: destination.limits() }
    }

    /// Returns the length of a request, bytes: `wanted`, or else what the destination prefers, or the source
    /// if only the source has blocks. It is a multiple of the blocks of both.
    pub(super) fn io_size(&self, wanted: Option<usize>) -> usize {
        let Self { source, destination } = self;
        let preferring = if destination.block_size > 1 { destination } else { source };
        let wanted = wanted.unwrap_or(preferring.preferred_transfer);
        let block = source.block_size.max(destination.block_size).max(1);
        wanted.max(1).next_multiple_of(usize::try_from(block).unwrap_or(1))
    }
}
