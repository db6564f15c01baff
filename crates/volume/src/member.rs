//! One of the devices that a volume is made of.

use std::sync::Arc;

use iscsi_block_device::{Device, DeviceError};

use crate::error::Error;

/// One of the devices that a volume is made of, with its name in errors.
#[derive(Clone, Debug)]
pub struct Member<D> {
    name: Arc<str>,
    device: D,
}

impl<D: Device> Member<D> {
    /// Creates a member. Errors of `device` begin with `name`.
    pub fn new(name: impl Into<Arc<str>>, device: D) -> Self {
        Self { name: name.into(), device }
    }

    /// Returns the name of the member.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the device.
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// Returns the member with its device replaced by the result of `change`.
    #[must_use]
    pub fn map(self, change: impl FnOnce(D) -> D) -> Self {
        Self { name: self.name, device: change(self.device) }
    }

    /// Adds the name of the member to an error of the device.
    pub(crate) fn failed(&self, error: DeviceError) -> DeviceError {
        error.of_member(&self.name)
    }

    /// Checks that the member supports chunks of `chunk` bytes, and data in the range `data`.
    pub(crate) fn check(&self, chunk: u64, data: &std::ops::Range<u64>) -> Result<(), Error> {
        let (member, capacity) = (|| self.name.to_string(), self.device.capacity());
        let block_size = self.device.limits().block_size.max(1);
        if !chunk.is_multiple_of(block_size.into()) {
            return Err(Error::BlockSize { member: member(), block_size, chunk });
        }
        if !data.start.is_multiple_of(block_size.into()) {
            let data_offset = data.start;
            return Err(Error::DataOffset { member: member(), block_size, data_offset });
        }
        if capacity < data.end {
            return Err(Error::TooSmall { member: member(), capacity, needed: data.end });
        }
        Ok(())
    }
}
