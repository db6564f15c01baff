//! A device as NBD clients see it.

use iscsi_initiator::device::{Device, DeviceLimits, ExtentState};
use iscsi_nbd::{
    BASE_ALLOCATION, BlockSizes, Errno, Export, Extent, MAX_PAYLOAD, TransmissionFlags,
};

/// What clients may know of a device, by this name.
///
/// A flush of one connection covers the writes of all: every connection writes to the same device.
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

/// Blocks of a length that NBD has no word for are told as bytes: the device takes any range.
fn block_sizes(limits: &DeviceLimits) -> BlockSizes {
    let granule = limits.discard_granularity.unwrap_or(0).max(limits.preferred_alignment).max(4096);
    let preferred = u32::try_from(granule).ok().filter(|granule| granule.is_power_of_two());
    let preferred = preferred.unwrap_or(4096).min(1 << 20);
    let sizes = BlockSizes { minimum: limits.block_size, preferred, maximum: MAX_PAYLOAD };
    if sizes.is_valid() { sizes } else { BlockSizes { minimum: 1, ..sizes } }
}

/// What `base:allocation` says of a part of the device.
pub(crate) const fn status(extent: &iscsi_initiator::device::Extent) -> Extent {
    let status = match extent.state {
        ExtentState::Deallocated => Extent::HOLE | Extent::ZERO,
        ExtentState::Anchored => Extent::ZERO,
        ExtentState::Unknown => Extent::HOLE,
        // What a later state may be is not known.
        ExtentState::Data | _ => 0,
    };
    Extent { length: extent.len, status }
}

/// What a client is told of an error.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    use std::io::ErrorKind;
    const KINDS: [(ErrorKind, Errno); 7] = [
        (ErrorKind::StorageFull, Errno::NoSpace),
        (ErrorKind::QuotaExceeded, Errno::NoSpace),
        (ErrorKind::PermissionDenied, Errno::Permission),
        (ErrorKind::ReadOnlyFilesystem, Errno::Permission),
        (ErrorKind::InvalidInput, Errno::Invalid),
        (ErrorKind::Unsupported, Errno::NotSupported),
        (ErrorKind::OutOfMemory, Errno::NoMemory),
    ];
    let told = KINDS.iter().find(|(kind, _)| *kind == error.kind());
    told.map_or(Errno::Io, |(_, errno)| *errno)
}
