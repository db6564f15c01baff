//! Describes a device to NBD clients.

use iscsi_initiator::device::{Device, DeviceError, DeviceErrorKind, DeviceLimits, ExtentState};
use iscsi_nbd::{
    BASE_ALLOCATION, BlockSizes, Errno, Export, Extent, MAX_PAYLOAD, TransmissionFlags,
};

/// Describes a device to clients, as the export `name`.
///
/// The export allows several connections: a flush on one of them covers the writes of all, because they write
/// to the same device.
#[must_use]
pub fn describe(device: &dyn Device, name: &str, is_read_only: bool) -> Export {
    let limits = device.limits();
    let is_read_only = is_read_only || limits.is_read_only;
    let flags = TransmissionFlags::HAS_FLAGS
        | TransmissionFlags::FLUSH
        | TransmissionFlags::FUA
        | TransmissionFlags::DONT_FRAGMENT
        | TransmissionFlags::MULTI_CONN
        | TransmissionFlags::CACHE;
    let can_trim = limits.discard_granularity.is_some() && !is_read_only;
    let flags = flags
        .with_if(is_read_only, TransmissionFlags::READ_ONLY)
        .with_if(!is_read_only, TransmissionFlags::WRITE_ZEROES | TransmissionFlags::FAST_ZERO)
        .with_if(can_trim, TransmissionFlags::TRIM);
    Export {
        name: name.to_owned(),
        size: device.capacity(),
        flags,
        block_sizes: block_sizes(&limits),
        contexts: vec![BASE_ALLOCATION.to_owned()],
        ..Export::default()
    }
}

/// Returns the block sizes: any length is allowed, and the preferred length suits the device. For a part of a
/// block, the server reads the block and writes it back, while other writes to the block wait. A client could
/// not do that safely. With a larger minimum, nbdcopy of libnbd would refuse a file that ends within a block.
fn block_sizes(limits: &DeviceLimits) -> BlockSizes {
    const MIN_PREFERRED: u64 = 4096;
    const MAX_PREFERRED: u32 = 1 << 20;
    let alignment = limits.preferred_alignment.max(limits.block_size.into());
    let granule = limits.discard_granularity.unwrap_or(0).max(alignment).max(MIN_PREFERRED);
    let preferred = u32::try_from(granule).ok().filter(|granule| granule.is_power_of_two());
    let preferred = preferred.unwrap_or(4096).min(MAX_PREFERRED);
    BlockSizes { minimum: 1, preferred, maximum: MAX_PAYLOAD }
}

/// Returns the flags of an extent in `base:allocation`.
pub(crate) const fn status(extent: &iscsi_initiator::device::Extent) -> Extent {
    let status = match extent.state {
        ExtentState::Deallocated => Extent::HOLE | Extent::ZERO,
        ExtentState::Anchored => Extent::ZERO,
        ExtentState::Unknown => Extent::HOLE,
        // A state that is added to the enum later says nothing about the data, so it gets no flags.
        ExtentState::Data | _ => 0,
    };
    Extent { length: extent.len, status }
}

/// Returns the NBD error code for a device error.
pub(crate) fn errno(error: &DeviceError) -> Errno {
    const KINDS: [(DeviceErrorKind, Errno); 7] = [
        (DeviceErrorKind::OutOfSpace, Errno::NoSpace),
        (DeviceErrorKind::Denied, Errno::Permission),
        (DeviceErrorKind::Fenced, Errno::Permission),
        (DeviceErrorKind::ReadOnly, Errno::Permission),
        (DeviceErrorKind::InvalidInput, Errno::Invalid),
        (DeviceErrorKind::Unsupported, Errno::NotSupported),
        (DeviceErrorKind::OutOfMemory, Errno::NoMemory),
    ];
    let told = KINDS.iter().find(|(kind, _)| *kind == failure(error));
    told.map_or(Errno::Io, |(_, errno)| *errno)
}

/// Returns the kind of the failure. For a lost write, it is the kind of the write's failure.
pub(crate) fn failure(error: &DeviceError) -> DeviceErrorKind {
    let kind = error.kind();
    if kind == DeviceErrorKind::LostWrites { error.io_kind().into() } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_may_be_of_any_bytes_and_blocks_are_preferred() {
        for (block_size, alignment, discard, preferred) in [
            (512, 512, None, 4096),
            (4096, 4096, None, 4096),
            (512, 512, Some(65_536), 65_536),
            (16_384, 0, None, 16_384),
            (512, 4 << 20, None, 1 << 20),
            // NBD cannot express block lengths that are no power of two, so the preferred size is 4096.
            (520, 520, None, 4096),
            (4160, 4160, None, 4096),
        ] {
            let mut limits = DeviceLimits::default();
            (limits.block_size, limits.preferred_alignment) = (block_size, alignment);
            limits.discard_granularity = discard;
            let sizes = block_sizes(&limits);
            assert!(sizes.is_valid(), "{sizes:?}");
            assert_eq!((sizes.minimum, sizes.preferred), (1, preferred), "{block_size}");
        }
    }
}
