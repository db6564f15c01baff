//! The session parameters that a URL sets.

use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_session::{Chap, ChapAlgorithm, DigestOffer, Offer, Timeouts};

use crate::options::redirects::Redirects;

/// Session parameters that a URL may set; `None` keeps the initiator's option.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Parameters {
    /// CHAP algorithm to offer, and no other.
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
    /// Time limit of a command, in seconds; 0 sets none.
    pub command_timeout: Option<u32>,
    /// Time limit of connect and login together, in seconds.
    pub login_timeout: Option<u32>,
    /// Time limit of a disk for errors that may pass by themselves, in seconds:
    /// [`Options::patience`](crate::Options::patience).
    pub patience: Option<u32>,
    /// Time limit for a target that is not there yet, in seconds:
    /// [`Options::open_patience`](crate::Options::open_patience).
    pub open_patience: Option<u32>,
    /// Interval at which an idle disk asks its unit for changes, in seconds; 0 for never:
    /// [`Options::poll`](crate::Options::poll).
    pub poll: Option<u32>,
    /// Key that registers the sessions of a disk with its unit (SPC-4 §5.13).
    pub reservation_key: Option<ReservationKey>,
}

impl Parameters {
    /// Writes what is set of CHAP over that of credentials.
    pub(crate) fn apply_to_chap(&self, chap: &mut Chap) {
        set(&mut chap.algorithms, self.chap_algorithm.map(|algorithm| vec![algorithm]));
        set(&mut chap.allow_short_secret, self.allow_short_secret);
    }

    /// Writes the parameters that are set over those of an offer and of time limits.
    pub(crate) fn apply(&self, offer: &mut Offer, timeouts: &mut Timeouts) {
        set(&mut offer.header_digest, self.header_digest);
        set(&mut offer.data_digest, self.data_digest);
        set(&mut offer.initial_r2t, self.initial_r2t);
        set(&mut offer.immediate_data, self.immediate_data);
        set(&mut offer.max_recv_data_segment_length, self.max_recv_data_segment_length);
        set(&mut offer.max_burst_length, self.max_burst_length);
        set(&mut offer.first_burst_length, self.first_burst_length);
        set(&mut offer.max_outstanding_r2t, self.max_outstanding_r2t);
        offer.first_burst_length = offer.first_burst_length.min(offer.max_burst_length);
        set(&mut timeouts.login, self.login_timeout.map(seconds));
        let command = self.command_timeout.map(|s| (s > 0).then(|| seconds(s)));
        set(&mut timeouts.command, command);
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
