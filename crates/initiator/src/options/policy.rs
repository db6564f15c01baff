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
