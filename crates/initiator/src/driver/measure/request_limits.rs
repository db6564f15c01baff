//! Limits the data that one connection may have in flight, so that requests and pings do not wait long behind that
//! data.

use std::time::Instant;

use iscsi_tuner::{ReadLimit, TcpInfo, WriteLimit};

/// The limits of one connection, as last measured. Each is `None` if it is not below `max`, the limit of the bytes
/// that the session may have in flight.
#[derive(Debug, Default)]
pub(crate) struct RequestLimits {
    write: WriteLimit,
    read: ReadLimit,
}

impl RequestLimits {
    /// Updates the limits from a report of the kernel, and from how fast the target takes write data: `progress` is
    /// the write data that is outstanding, and the write data of the writes that have ended, in bytes.
    pub(super) fn observe(&mut self, info: &TcpInfo, progress: (u64, u64), now: Instant) {
        let (outstanding, concluded) = progress;
        self.write.observe(info, now);
        self.write.observe_target(outstanding, concluded, now);
        self.read.observe(info, now);
    }

    /// Returns the limit of outstanding read data, in bytes.
    pub(crate) const fn read(&self, max: u64) -> Option<u64> {
        self.read.bytes(max)
    }

    /// Returns the length that suits a read, in bytes. It depends on the bytes that have arrived so far.
    pub(crate) fn longest_read(&self, max: u64) -> Option<u64> {
        self.read.longest_read(max)
    }

    /// Returns the limit of write data in flight, in bytes. `copes_with_loss`: whether the congestion control of the
    /// connection does.
    pub(crate) fn write(&self, copes_with_loss: bool, max: u64) -> Option<u64> {
        self.write.bytes(copes_with_loss, max)
    }

    /// Returns the length that suits a write, in bytes.
    pub(crate) fn longest_write(&self, copes_with_loss: bool, max: u64) -> Option<u64> {
        self.write.longest_write(copes_with_loss, max)
    }

    /// Returns the limit of outstanding write data, in bytes, if the target is slow.
    pub(crate) const fn of_slow_target(&self) -> Option<u64> {
        self.write.of_slow_target()
    }

    /// Applies the limit of other connections that found the target slow: they may have `bytes` of write data
    /// outstanding. If the limit of this connection is higher, it is lowered to half of `bytes`.
    pub(super) const fn on_slow_target(&mut self, bytes: u64) {
        self.write.share(bytes);
    }
}
