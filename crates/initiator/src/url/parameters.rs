//! Defines the session parameters that a URL can set.

use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_session::{Chap, ChapAlgorithm, DigestOffer, Offer, Timeouts};

use crate::options::redirects::Redirects;

/// Session parameters that a URL may set; `None` keeps the initiator's option.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Parameters {
    /// The only CHAP algorithm to offer.
    pub chap_algorithm: Option<ChapAlgorithm>,
    /// Whether a CHAP secret below 96 bits may be used (RFC 7143 §9.2.1).
    pub allow_short_secret: Option<bool>,
    /// Which redirections of a login are followed (RFC 7143 §11.13.5).
    pub redirects: Option<Redirects>,
    /// HeaderDigest (RFC 7143 §13.1).
    pub header_digest: Option<DigestOffer>,
    /// DataDigest (RFC 7143 §13.1).
    pub data_digest: Option<DigestOffer>,
    /// InitialR2T (RFC 7143 §13.10).
    pub initial_r2t: Option<bool>,
    /// ImmediateData (RFC 7143 §13.11).
    pub immediate_data: Option<bool>,
    /// MaxRecvDataSegmentLength, bytes (RFC 7143 §13.12).
    pub max_recv_data_segment_length: Option<u32>,
    /// MaxBurstLength, bytes (RFC 7143 §13.13).
    pub max_burst_length: Option<u32>,
    /// FirstBurstLength, bytes (RFC 7143 §13.14).
    pub first_burst_length: Option<u32>,
    /// MaxOutstandingR2T (RFC 7143 §13.17).
    pub max_outstanding_r2t: Option<u16>,
    /// Time limit of a command, in seconds; 0 for no limit.
    pub command_timeout: Option<u32>,
    /// Time limit of connect and login together, in seconds.
    pub login_timeout: Option<u32>,
    /// Time limit of a disk for errors that may pass by themselves, in seconds:
    /// [`Options::with_retry_timeout`](crate::Options::with_retry_timeout).
    pub retry_timeout: Option<u32>,
    /// Time limit of retries while a target is not available yet, in seconds:
    /// [`Options::with_open_timeout`](crate::Options::with_open_timeout).
    pub open_timeout: Option<u32>,
    /// Interval at which an idle disk polls its unit for changes, in seconds; 0 for never:
    /// [`Options::with_poll`](crate::Options::with_poll).
    pub poll: Option<u32>,
    /// Key that registers the sessions of a disk with its unit (SPC-4 §5.13).
    pub reservation_key: Option<ReservationKey>,
}

impl Parameters {
    /// Replaces the CHAP settings of credentials by those that the URL sets.
    pub(crate) fn apply_to_chap(&self, chap: &mut Chap) {
        set(&mut chap.algorithms, self.chap_algorithm.map(|algorithm| vec![algorithm]));
        set(&mut chap.allow_short_secret, self.allow_short_secret);
    }

    /// Replaces the parameters of an offer by those that the URL sets.
    pub(crate) fn apply_to_offer(&self, offer: Offer) -> Offer {
        let offer = put(offer, self.header_digest, Offer::with_header_digest);
        let offer = put(offer, self.data_digest, Offer::with_data_digest);
        let offer = put(offer, self.initial_r2t, Offer::with_initial_r2t);
        let offer = put(offer, self.immediate_data, Offer::with_immediate_data);
        let segment = self.max_recv_data_segment_length;
        let offer = put(offer, segment, Offer::with_max_recv_data_segment_length);
        let offer = put(offer, self.max_burst_length, Offer::with_max_burst_length);
        let offer = put(offer, self.first_burst_length, Offer::with_first_burst_length);
        let offer = put(offer, self.max_outstanding_r2t, Offer::with_max_outstanding_r2t);
        offer.with_first_burst_length(offer.first_burst_length().min(offer.max_burst_length()))
    }

    /// Replaces time limits by those that the URL sets.
    pub(crate) fn apply_to_timeouts(&self, timeouts: Timeouts) -> Timeouts {
        let timeouts = put(timeouts, self.login_timeout.map(seconds), Timeouts::with_login);
        let command = self.command_timeout.map(|s| (s > 0).then(|| seconds(s)));
        put(timeouts, command, Timeouts::with_command)
    }
}

/// Sets a value, unless it is `None`.
fn put<T, V>(of: T, value: Option<V>, with: fn(T, V) -> T) -> T {
    match value {
        Some(value) => with(of, value),
        None => of,
    }
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
