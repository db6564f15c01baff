//! Implements the device traits for a disk.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use iscsi_block_device::{
    BufferPool, Device, DeviceError, DeviceErrorKind, DeviceFuture, DeviceLimits, DeviceName,
    DeviceResult, Extent,
};
use iscsi_pdu::scsi::SenseKey;

use super::Disk;
use crate::error::{Error, ErrorKind};

impl Device for Disk {
    fn capacity(&self) -> u64 {
        self.capacity()
    }

    fn limits(&self) -> DeviceLimits {
        let profile = self.profile();
        let plan = self.unit().session().plan();
        let planned = plan.and_then(|plan| usize::try_from(plan.io_size.value).ok());
        let block_size = self.block_size();
        let mut limits = DeviceLimits::default();
        limits.block_size = block_size;
        limits.preferred_alignment = profile.capacity.physical_block_size.max(block_size.into());
        limits.preferred_transfer = planned.unwrap_or(usize::MAX).clamp(1, self.max_transfer());
        limits.max_transfer = self.max_transfer();
        limits.discard_granularity =
            self.has_unmap().then(|| u64::from(self.granules().len) * u64::from(block_size));
        limits.has_fast_zeroes = self.has_fast_zeroes();
        limits.is_read_only = profile.write_protected;
        // The write cache may have been enabled after the disk was opened and its profile was read.
        limits.has_volatile_cache =
            profile.write_cache != Some(false) || self.unit.state().lock().durability.has_cache();
        limits
    }

    fn attentions(&self) -> u64 {
        self.unit_attention_count()
    }

    /// Returns the name of the unit (VPD page 83), or its serial number (VPD page 80).
    fn name(&self) -> DeviceResult<Option<DeviceName>> {
        let profile = self.profile();
        let name = match (&profile.designator, &profile.serial_number) {
            (Some(designator), _) => designator.to_string(),
            (None, Some(serial)) => format!("serial number {serial}"),
            (None, None) => return Ok(None),
        };
        Ok(Some(DeviceName::new(format!("logical unit {name}"), profile.capacity.bytes())))
    }

    /// Describes the sessions of this process for [`end_left`](Device::end_left) in a later process: the
    /// initiator's name, the ISIDs, the target and its portals. `None` for a disk that was opened over an
    /// existing session.
    fn leaves(&self) -> Option<String> {
        self.opener.as_ref().map(|opener| opener.leaves())
    }

    /// Logs in once under each ISID in `left` at each portal group of the target, and logs out again: at the
    /// login the target ends the old session with that ISID (RFC 7143 §6.3.5).
    fn end_left<'a>(&'a self, left: &'a str) -> DeviceFuture<'a, ()> {
        Box::pin(async move {
            let opener = self.opener.as_ref().ok_or(DeviceErrorKind::Unsupported)?;
            Ok(opener.end_left(left).await?)
        })
    }

    fn is_settled(&self) -> bool {
        self.is_settled()
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        self.queue_depth(io_size)
    }

    fn read_depth(&self, io_size: usize) -> usize {
        self.read_depth(io_size)
    }

    fn read_into(&self, offset: u64, buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        boxed(self.read_into(offset, buffer))
    }

    fn read_with(
        &self,
        offset: u64,
        len: usize,
        buffers: Arc<dyn BufferPool>,
    ) -> DeviceFuture<'_, BytesMut> {
        boxed(self.read_with(offset, len, buffers))
    }

    fn read_at(&self, offset: u64, len: usize) -> DeviceFuture<'_, Bytes> {
        boxed(self.read_at(offset, len))
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        boxed(self.write_at(offset, pages))
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        boxed(self.flush())
    }

    fn confirm(&self) -> DeviceFuture<'_, ()> {
        boxed(self.confirm_unit())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        boxed(self.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        boxed(self.write_zeroes(offset, len))
    }

    fn write_allocated_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        boxed(self.write_allocated_zeroes(offset, len))
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        boxed(self.extents(offset, len))
    }

    fn first_extent(&self, offset: u64, len: u64) -> DeviceFuture<'_, Option<Extent>> {
        boxed(self.first_extent(offset, len))
    }
}

fn boxed<'a, T>(
    request: impl Future<Output = Result<T, Error>> + Send + 'a,
) -> DeviceFuture<'a, T> {
    Box::pin(async move { request.await.map_err(DeviceError::from) })
}

impl From<Error> for DeviceError {
    /// Keeps the error as the [source](std::error::Error::source), and takes over its advice.
    fn from(error: Error) -> Self {
        let advice = error.advice().map(crate::Advice::text);
        Self::new(kind(&error), error).with_advice(advice)
    }
}

/// Returns the kind of a device error for an error of the unit, or of a session.
fn kind(error: &Error) -> DeviceErrorKind {
    match error.kind() {
        ErrorKind::Authentication | ErrorKind::ReservationConflict => DeviceErrorKind::Denied,
        ErrorKind::NotFound => DeviceErrorKind::NotFound,
        ErrorKind::Refused | ErrorKind::Unreachable => DeviceErrorKind::Unreachable,
        ErrorKind::Transient => DeviceErrorKind::Busy,
        ErrorKind::ConnectionLost | ErrorKind::MayHaveExecuted => DeviceErrorKind::ConnectionLost,
        ErrorKind::TimedOut => DeviceErrorKind::TimedOut,
        ErrorKind::Closed => DeviceErrorKind::Closed,
        ErrorKind::Aborted => DeviceErrorKind::Aborted,
        ErrorKind::WriteProtected => DeviceErrorKind::ReadOnly,
        ErrorKind::OutOfSpace => DeviceErrorKind::OutOfSpace,
        // Only MEDIUM ERROR means that some blocks cannot be read. A hardware error says nothing about the
        // other blocks, and blank blocks were never written.
        ErrorKind::Medium if is_medium_error(error) => DeviceErrorKind::Medium,
        ErrorKind::Medium => DeviceErrorKind::Defective,
        ErrorKind::UnitChanged => DeviceErrorKind::AnotherDevice,
        ErrorKind::Preempted => DeviceErrorKind::Fenced,
        ErrorKind::UnflushedWritesLost => DeviceErrorKind::LostWrites,
        ErrorKind::Unsettled => DeviceErrorKind::InDoubt,
        ErrorKind::Protocol => DeviceErrorKind::Protocol,
        ErrorKind::InvalidInput => DeviceErrorKind::InvalidInput,
        ErrorKind::Unsupported => DeviceErrorKind::Unsupported,
        ErrorKind::StillRegistered | ErrorKind::Other => DeviceErrorKind::Other,
    }
}

fn is_medium_error(error: &Error) -> bool {
    error.sense().is_some_and(|sense| sense.key == SenseKey::MediumError)
}

#[cfg(test)]
mod tests {
    use std::io;

    use iscsi_pdu::scsi::Sense;

    use super::*;
    use crate::error::UnitCause;

    fn sense(key: u8, asc: u8, ascq: u8) -> Error {
        let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        let sense = Sense::decode(&bytes).unwrap();
        Error::from(UnitCause::CheckCondition { command: "READ(16)", sense })
    }

    #[test]
    fn an_error_of_a_unit_keeps_its_text_its_advice_and_itself() {
        let lost = Error::from(UnitCause::UnflushedWritesLost);
        let text = lost.to_string();
        let error = DeviceError::from(lost).of_member("member 1");
        assert_eq!(error.kind(), DeviceErrorKind::LostWrites);
        assert_eq!(error.to_string(), format!("member 1: {text}"));
        assert_eq!(error.advice(), Some(crate::Advice::WriteAgain.text()));
        let unit = error.source_as::<Error>().map(Error::kind);
        assert_eq!(unit, Some(ErrorKind::UnflushedWritesLost));
        // The source is found also after the error has passed through an `io::Error`.
        let error = DeviceError::from(io::Error::from(error));
        assert!(error.source_as::<Error>().is_some());
    }

    #[test]
    fn only_a_medium_error_is_one_block_that_cannot_be_read() {
        for (error, kind) in [
            (sense(3, 0x11, 0), DeviceErrorKind::Medium),
            (sense(4, 0x44, 0), DeviceErrorKind::Defective),
            (sense(8, 0, 0), DeviceErrorKind::Defective),
            (sense(7, 0x27, 7), DeviceErrorKind::OutOfSpace),
        ] {
            assert_eq!(DeviceError::from(error).kind(), kind);
        }
    }
}
