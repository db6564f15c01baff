//! Defines the rules for requests that fail or are late, and for their rate.

use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;

use crate::options::back_off::BackOff;
use crate::options::hedge::HedgeOptions;
use crate::traffic_class::TrafficClass;

/// The options for requests, within their ranges.
#[derive(Clone, Debug)]
pub(crate) struct RequestPolicy {
    /// Time limit of a disk for errors that may pass by themselves.
    pub(crate) patience: Duration,
    /// Pauses before a retry.
    pub(crate) retry: BackOff,
    pub(crate) hedge: HedgeOptions,
    /// Key by which the sessions of a disk are registered with the unit; `None` registers no session.
    pub(crate) reservation_key: Option<ReservationKey>,
    /// Class that limits the rate of the disk's requests; `None` for no limit.
    pub(crate) class: Option<TrafficClass>,
}

impl RequestPolicy {
    /// Returns the maximum length of a request of a disk, in bytes; `None` if there is no class, or the class
    /// has no limit.
    pub(crate) fn max_shaped_len(&self) -> Option<u64> {
        self.class.as_ref()?.max_request_len()
    }

    /// Returns how many requests of `io_size` bytes the class admits per second, at least two; `None` if there
    /// is no class, or the class has no limit. More concurrent requests would only wait.
    pub(crate) fn shaped_depth(&self, io_size: usize) -> Option<usize> {
        let bytes = self.class.as_ref()?.bytes_in_second()?;
        let depth = bytes.div_ceil((io_size as u64).max(1)).max(2);
        Some(usize::try_from(depth).unwrap_or(usize::MAX))
    }
}
