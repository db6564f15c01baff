//! What a session and its disk do about requests that end badly, or are late, and what rules them.

use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;

use crate::options::back_off::BackOff;
use crate::options::hedge::HedgeOptions;
use crate::traffic_class::TrafficClass;

/// The options about that, within their ranges.
#[derive(Clone, Debug)]
pub(crate) struct RequestPolicy {
    /// How long a disk puts up with what may pass by itself.
    pub(crate) patience: Duration,
    /// The pauses before a retry.
    pub(crate) retry: BackOff,
    pub(crate) hedge: HedgeOptions,
    /// By what the sessions of a disk are registered with the unit.
    pub(crate) reservation_key: Option<ReservationKey>,
    /// By what the requests of a disk are ruled.
    pub(crate) class: Option<TrafficClass>,
}

impl RequestPolicy {
    /// The longest that a request of a disk should be by its class, bytes, if that has a limit.
    pub(crate) fn max_shaped_len(&self) -> Option<u64> {
        self.class.as_ref()?.max_request_len()
    }

    /// How many requests of so many bytes the class lets pass in a second, two at least, if it has a limit:
    /// more would only wait.
    pub(crate) fn shaped_depth(&self, io_size: usize) -> Option<usize> {
        let bytes = self.class.as_ref()?.bytes_in_second()?;
        let depth = bytes.div_ceil((io_size as u64).max(1)).max(2);
        Some(usize::try_from(depth).unwrap_or(usize::MAX))
    }
}
