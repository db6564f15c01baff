//! Defines what a disk does when its requests have waited for the retry timeout.

/// Behaviour of a [`Disk`](crate::Disk) whose last session could not be reconnected within
/// [`Options::with_retry_timeout`](crate::Options::with_retry_timeout).
///
/// With either choice, the disk ends if further attempts cannot succeed: the target refuses the credentials
/// seven times within that time, the unit has another size or is another unit, or another host has fenced this
/// host off.
#[doc(alias = "queue_if_no_path")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum OnRetryTimeout {
    /// The disk ends, with all its requests.
    #[default]
    EndDisk,
    /// Waiting and new requests fail ([`Error::reconnect_error`](crate::Error::reconnect_error) has the
    /// reason), and the disk continues to reconnect until an attempt succeeds. Servers need this choice.
    FailRequests,
}
