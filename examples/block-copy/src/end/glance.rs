//! Reads a few blocks of a unit before a copy.

use bytes::{Bytes, BytesMut};
use iscsi_copy::Device;
use iscsi_initiator::device::{DeviceErrorKind, DeviceFuture, DeviceLimits};
use iscsi_initiator::{Disk, LogicalUnit};

/// A unit whose first blocks are read before a copy. These reads are not charged to the unit's traffic class,
/// whose rate may be low. (The commands that open a unit are not charged either.) A `Glance` reads whole
/// blocks, and writes nothing.
#[derive(Debug)]
pub(super) struct Glance {
    unit: LogicalUnit,
    capacity: u64,
    block_size: u32,
}

impl Glance {
    pub(super) fn new(disk: &Disk) -> Self {
        let (unit, capacity) = (disk.unit(), disk.capacity());
        Self { unit, capacity, block_size: disk.block_size() }
    }
}

impl Device for Glance {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = DeviceLimits::default();
        (limits.block_size, limits.is_read_only) = (self.block_size, true);
        limits
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        let first = offset / u64::from(self.block_size.max(1));
        Box::pin(async move { Ok(self.unit.read_into(first, buffer).await?) })
    }

    fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async { Err(DeviceErrorKind::Unsupported.into()) })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async { Err(DeviceErrorKind::Unsupported.into()) })
    }
}
