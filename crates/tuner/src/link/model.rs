//! Models a link by properties that are measured, declared, or derived from both.

use std::time::Duration;

use crate::link::loss::loss_ceiling;
use crate::link::rtt::Rtt;
use crate::link::tcp_info::TcpInfo;
use crate::path_mtu::SegmentLimit;
use crate::size::Size;
use crate::transfers::{LinkTraits, TransferTerms};
use crate::tuning::Tuning;
use iscsi_rate::Rate;

/// The measured properties of a link; all of them may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// Round-trip time.
    pub rtt: Option<Rtt>,
    /// The rate at which data arrived while nothing but the link was the limit.
    pub bandwidth: Option<Rate>,
    /// The share of data segments that were lost, 0 to 1.
    pub loss: Option<f64>,
    /// Longest segment, bytes of payload.
    pub mss: Option<u32>,
    /// Longest packet that the path takes, bytes.
    pub path_mtu: Option<u32>,
    /// The limit of the segment length, if the path drops longer segments.
    pub segment_limit: Option<SegmentLimit>,
    /// The largest window that the peer has offered, bytes.
    pub peer_window: Option<u64>,
    /// The terms of transfers that initiator and target have negotiated.
    pub terms: Option<TransferTerms>,
}

impl Measurement {
    /// Creates a measurement from a single reading of a connection.
    #[must_use]
    pub fn of_tcp(info: &TcpInfo) -> Self {
        Self {
            rtt: Rtt::of_tcp(info),
            mss: info.send_mss.filter(|mss| *mss > 0),
            path_mtu: info.path_mtu.filter(|mtu| *mtu > 0),
            peer_window: info.peer_window.map(u64::from),
            ..Self::default()
        }
    }

    /// Updates the measurement by a later reading; the smallest round-trip time and the largest window are
    /// kept.
    pub fn update(&mut self, info: &TcpInfo) {
        let new = Self::of_tcp(info);
        self.rtt = match (self.rtt, new.rtt) {
            (Some(old), Some(new)) => Some(Rtt { min: old.min.min(new.min), ..new }),
            (old, new) => new.or(old),
        };
        self.mss = new.mss.or(self.mss);
        self.path_mtu = new.path_mtu.or(self.path_mtu);
        self.peer_window = self.peer_window.max(new.peer_window);
    }
}

/// Source of the rate of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Basis {
    /// The rate was declared by the user.
    Declared,
    /// The rate was measured: data arrived at that rate while a queue stood before the link.
    Estimated,
    /// The rate is assumed, because nothing is known; most links are no faster.
    Assumed,
}

/// A link as the policies use it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkModel {
    /// Round-trip time; `None` before the first sample.
    pub rtt: Option<Rtt>,
    /// The rate of the narrowest part of the link.
    pub bandwidth: Rate,
    /// The source of the rate.
    pub basis: Basis,
    /// The share of segments that are lost, 0 to 1.
    pub loss: f64,
    /// Longest segment, bytes of payload.
    pub mss: u32,
}

/// Assumed rate of a link of which nothing is known.
const ASSUMED: Rate = Rate::GIGABIT;
/// Payload of a segment on Ethernet without jumbo frames, with timestamps, bytes.
pub(crate) const USUAL_MSS: u32 = 1448;
/// Bytes of a segment on the wire besides its payload: IP 20, TCP with timestamps 32, Ethernet 18, preamble
/// and gap 20.
const OVERHEAD: u64 = 90;
/// Buffers are multiples of this, bytes.
const STEP: u64 = 128 << 10;
/// Up to this round-trip time, a round trip has no noticeable cost.
const LOCAL: Duration = Duration::from_millis(1);
/// A link is long above this round-trip time (Y. Zhang's thesis, table 4.3).
pub(crate) const LONG: Duration = Duration::from_millis(40);
/// From this round-trip time on, data that a target requests may arrive after the target's time limit (LIO: 3
/// seconds): the queue that slow start builds is a few round trips long, and a lost segment costs another
/// round trip.
const FAR: Duration = Duration::from_millis(300);

impl LinkModel {
    /// Creates the model of a link from a measurement and from the user's declarations.
    #[must_use]
    pub fn new(measurement: &Measurement, tuning: &Tuning) -> Self {
        let (bandwidth, basis) = match (tuning.bandwidth, measurement.bandwidth) {
            (Some(declared), _) => (declared, Basis::Declared),
            (None, Some(estimated)) => (estimated, Basis::Estimated),
            (None, None) => (ASSUMED, Basis::Assumed),
        };
        let loss = measurement.loss.filter(|loss| loss.is_finite()).unwrap_or(0.0).clamp(0.0, 1.0);
        let mss = measurement.mss.unwrap_or(USUAL_MSS).max(1);
        Self { rtt: measurement.rtt, bandwidth, basis, loss, mss }
    }

    /// Returns the round-trip time to plan for: the mean where it varies, the smallest where it does not.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.rtt
            .map_or(Duration::ZERO, |rtt| if rtt.is_variable() { rtt.smoothed } else { rtt.min })
    }

    /// Returns whether round trips have no noticeable cost; `false` before the first sample.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.rtt.is_some_and(|rtt| rtt.min <= LOCAL)
    }

    /// Returns the bandwidth-delay product, bytes.
    #[must_use]
    pub fn bandwidth_delay_product(&self) -> u64 {
        self.bandwidth.bytes_in(self.round_trip())
    }

    /// Returns the smallest send buffer that lets one connection fill the link, bytes: the payload's share of
    /// the bandwidth-delay product, in steps of 128 KiB. A larger one does not help.
    #[must_use]
    pub fn max_benefit(&self) -> u64 {
        let segment = u64::from(self.mss);
        let product = u128::from(self.bandwidth_delay_product());
        let payload = product * u128::from(segment) / u128::from(segment + OVERHEAD);
        let payload = u64::try_from(payload).unwrap_or(u64::MAX);
        payload.max(1).div_ceil(STEP).saturating_mul(STEP)
    }

    /// Returns the rate that one connection can reach with the link's loss; `None` without loss or without a
    /// round-trip time.
    #[must_use]
    pub fn loss_ceiling(&self) -> Option<Rate> {
        loss_ceiling(self.loss, self.round_trip(), self.mss)
    }

    /// Returns the properties of the link for transfers that should have `in_flight` bytes on it.
    pub(crate) fn traits(&self, in_flight: u64) -> LinkTraits {
        LinkTraits {
            in_flight,
            is_local: self.is_local(),
            is_lossy: self.loses_one_of_most(in_flight),
            is_long: self.rtt.is_some_and(|rtt| rtt.min > LONG),
            is_far: self.rtt.is_some_and(|rtt| rtt.min >= FAR),
        }
    }

    /// Returns whether the probability that at least one segment of `bytes` bytes is lost exceeds one half.
    fn loses_one_of_most(&self, bytes: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a chance")]
        let segments = bytes as f64 / f64::from(self.mss);
        (1.0 - self.loss).powf(segments) < 0.5
    }

    /// Describes the rate with its source, and the bandwidth-delay product, as readable text.
    pub(crate) fn describe(&self) -> String {
        let Self { bandwidth, basis, .. } = self;
        let basis = match basis {
            Basis::Declared => "declared",
            Basis::Estimated => "estimated",
            Basis::Assumed => "assumed",
        };
        match self.rtt {
            None => format!("{bandwidth} ({basis}), round-trip time not measured yet"),
            Some(_) => format!(
                "{bandwidth} ({basis}) x {:.1} ms = {}",
                self.round_trip().as_secs_f64() * 1e3,
                Size(self.bandwidth_delay_product())
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(millis: u64, bandwidth: &str) -> LinkModel {
        let measurement = Measurement {
            rtt: Some(Rtt::first(Duration::from_millis(millis))),
            ..Measurement::default()
        };
        let tuning = Tuning { bandwidth: bandwidth.parse().ok(), ..Tuning::default() };
        LinkModel::new(&measurement, &tuning)
    }

    /// The computed buffers are the smallest sufficient buffers that the literature states for 100 Mbit/s.
    #[test]
    fn the_buffer_of_most_benefit_is_that_of_the_literature() {
        assert_eq!(link(40, "100mbit").max_benefit(), 512 << 10);
        assert_eq!(link(100, "100mbit").max_benefit(), 1152 << 10);
        assert_eq!(link(0, "100mbit").max_benefit(), 128 << 10);
    }

    #[test]
    fn a_declared_rate_comes_before_an_estimate_before_an_assumption() {
        let measured = Measurement { bandwidth: "50mbit".parse().ok(), ..Measurement::default() };
        let declared = Tuning { bandwidth: "10mbit".parse().ok(), ..Tuning::default() };
        assert_eq!(LinkModel::new(&measured, &declared).basis, Basis::Declared);
        assert_eq!(LinkModel::new(&measured, &Tuning::default()).basis, Basis::Estimated);
        let nothing = LinkModel::new(&Measurement::default(), &Tuning::default());
        assert_eq!((nothing.basis, nothing.bandwidth), (Basis::Assumed, Rate::GIGABIT));
    }

    #[test]
    fn where_the_round_trip_varies_its_mean_counts() {
        let mut measurement = Measurement {
            rtt: Rtt::of([50, 150].repeat(8).into_iter().map(Duration::from_millis)),
            ..Measurement::default()
        };
        let varying = LinkModel::new(&measurement, &Tuning::default());
        assert!(varying.round_trip() > Duration::from_millis(90));
        measurement.rtt = measurement.rtt.map(|rtt| Rtt { deviation: Duration::ZERO, ..rtt });
        let steady = LinkModel::new(&measurement, &Tuning::default());
        assert_eq!(steady.round_trip(), Duration::from_millis(50));
    }

    #[test]
    fn loss_sets_a_ceiling() {
        let mut lossy = link(100, "100mbit");
        assert_eq!(lossy.loss_ceiling(), None);
        lossy.loss = 0.001;
        let ceiling = lossy.loss_ceiling().unwrap().mbit_per_second();
        assert!((4.4..4.6).contains(&ceiling), "{ceiling}");
        lossy.loss = 1e-300;
        assert_eq!(lossy.loss_ceiling(), Some(Rate::MAX));
    }

    #[test]
    fn a_longer_way_loses_one_of_most_windows_sooner() {
        let mut lossy = link(100, "100mbit");
        assert!(!lossy.traits(1 << 30).is_lossy);
        lossy.loss = 0.001;
        assert!(!lossy.traits(500_000).is_lossy);
        assert!(lossy.traits(2_000_000).is_lossy);
    }

    #[test]
    fn a_nonsense_loss_is_brought_into_range() {
        for (loss, expected) in [(f64::NAN, 0.0), (-1.0, 0.0), (7.0, 1.0), (f64::INFINITY, 0.0)] {
            let measurement = Measurement { loss: Some(loss), ..Measurement::default() };
            assert!(
                (LinkModel::new(&measurement, &Tuning::default()).loss - expected).abs() < 1e-9
            );
        }
    }

    #[test]
    fn later_readings_refine_the_first() {
        let reading = |rtt, window| TcpInfo {
            smoothed_rtt: Some(Duration::from_millis(rtt)),
            min_rtt: Some(Duration::from_millis(rtt)),
            peer_window: Some(window),
            ..TcpInfo::default()
        };
        let mut measurement = Measurement::of_tcp(&reading(40, 64_000));
        measurement.update(&reading(90, 3_000_000));
        measurement.update(&reading(80, 10_000));
        let rtt = measurement.rtt.unwrap();
        assert_eq!((rtt.min.as_millis(), rtt.smoothed.as_millis()), (40, 80));
        assert_eq!(measurement.peer_window, Some(3_000_000));
    }
}
