//! The kernel's report of a TCP connection (`TCP_INFO`).

use std::time::Duration;

use iscsi_rate::Rate;

/// A reading of `TCP_INFO`; `None` wherever the kernel does not report a value.
///
/// Cumulative times and counters run from the beginning of the connection. Outside this crate a reading
/// begins as [`TcpInfo::default`], whose fields can be set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub smoothed_rtt: Option<Duration>,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Option<Duration>,
    /// The smallest round-trip time of the last minutes.
    pub min_rtt: Option<Duration>,
    /// The round-trip time estimated from received data; less exact than the estimate from sent data.
    pub receive_rtt: Option<Duration>,
    /// Longest segment that this end sends, bytes of payload.
    pub send_mss: Option<u32>,
    /// About the longest received segment, bytes of payload; 536 or less before a longer one arrived.
    pub receive_mss: Option<u32>,
    /// Longest packet that the path takes, bytes.
    pub path_mtu: Option<u32>,
    /// Congestion window, segments.
    pub congestion_window: Option<u32>,
    /// Congestion window at which slow start ends, segments; `None` before a loss has set it.
    pub slow_start_threshold: Option<u32>,
    /// Segments sent and not yet acknowledged.
    pub segments_in_flight: Option<u32>,
    /// Number of consecutive probes without an answer, sent to a silent peer or to a peer whose window is
    /// closed.
    pub probes_unanswered: Option<u32>,
    /// Retransmitted segments.
    pub segments_retransmitted: Option<u32>,
    /// Number of consecutive retransmissions of the oldest unacknowledged segment after a timeout.
    pub timeouts_in_a_row: Option<u32>,
    /// Segments sent, with or without data.
    pub segments_sent: Option<u32>,
    /// Segments received, with or without data.
    pub segments_received: Option<u32>,
    /// Segments with data received.
    pub data_segments_received: Option<u32>,
    /// Segments with data sent.
    pub data_segments_sent: Option<u32>,
    /// Largest sending rate, if one was set on the socket (`limit_pacing`).
    pub max_pacing_rate: Option<Rate>,
    /// The latest estimate of the rate at which data arrives at the peer.
    pub delivery_rate: Option<Rate>,
    /// Whether `delivery_rate` was estimated while there was too little to send.
    pub delivery_rate_app_limited: Option<bool>,
    /// The time in which data waited to be sent or acknowledged.
    pub busy: Option<Duration>,
    /// The part of `busy` in which the peer's receive window was the limit.
    pub receive_window_limited: Option<Duration>,
    /// The part of `busy` in which the send buffer was the limit.
    pub send_buffer_limited: Option<Duration>,
    /// Bytes acknowledged by the peer.
    pub bytes_acknowledged: Option<u64>,
    /// Bytes received.
    pub bytes_received: Option<u64>,
    /// Bytes in the send buffer that have not been sent.
    pub bytes_not_sent: Option<u32>,
    /// Segments received out of order, while an earlier one was missing.
    pub segments_out_of_order: Option<u32>,
    /// Segments that the peer reports as received twice (DSACK, RFC 2883): their retransmission was
    /// unnecessary.
    pub segments_duplicated: Option<u32>,
    /// The window that the peer offers, bytes.
    pub peer_window: Option<u32>,
    /// The window that this end offers, bytes.
    pub receive_window: Option<u32>,
    /// Whether both hosts support selective acknowledgements (RFC 2018).
    pub selective_acknowledgement: Option<bool>,
    /// Whether both hosts send timestamps (RFC 7323).
    pub timestamps: Option<bool>,
    /// Whether both hosts scale their windows (RFC 7323); without scaling at most 64 KiB are in flight.
    pub window_scaling: Option<bool>,
}

impl TcpInfo {
    /// Returns whether the peer's host has acknowledged all sent data, and answers the probes of a closed
    /// window. Then the host is alive, even if its program hangs.
    #[must_use]
    pub fn is_all_acknowledged(&self) -> bool {
        /// One probe may be in flight, without an answer so far.
        const MAX_PROBES: u32 = 1;
        self.segments_in_flight == Some(0)
            && self.probes_unanswered.is_none_or(|probes| probes <= MAX_PROBES)
    }

    /// Returns whether the peer's host has acknowledged nothing during four retransmissions of the same segment. With
    /// the shortest timeout of Linux, 200 ms, which doubles each time, that takes three seconds. A link that loses one
    /// segment of ten brings this about by chance once in 10,000 losses.
    #[must_use]
    pub fn is_host_silent(&self) -> bool {
        const MIN_TIMEOUTS: u32 = 4;
        self.timeouts_in_a_row.is_some_and(|timeouts| timeouts >= MIN_TIMEOUTS)
    }

    /// Parses the structure `tcp_info` of Linux. Newer fields are at its end; an older kernel's structure
    /// lacks them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let at = Layout(bytes);
        let options = at.byte(5);
        let option = |mask: u8| options.map(|options| options & mask != 0);
        Self {
            smoothed_rtt: at.micros32(68),
            rtt_deviation: at.micros32(72),
            // The kernel reports 2^32 - 1 before the first sample.
            min_rtt: at.word(148).filter(|min| *min != u32::MAX).map(micros),
            receive_rtt: at.word(92).filter(|rtt| *rtt > 0).map(micros),
            send_mss: at.word(16),
            receive_mss: at.word(20),
            timeouts_in_a_row: at.byte(2).map(u32::from),
            path_mtu: at.word(60),
            congestion_window: at.word(80),
            slow_start_threshold: at.word(76).filter(|threshold| *threshold < 0x7fff_ffff),
            segments_in_flight: at.word(24),
            probes_unanswered: at.byte(3).map(u32::from),
            segments_retransmitted: at.word(100),
            segments_sent: at.word(136),
            segments_received: at.word(140),
            data_segments_received: at.word(152),
            data_segments_sent: at.word(156),
            max_pacing_rate: at
                .long(112)
                .filter(|rate| (1..u64::MAX).contains(rate))
                .map(|rate| Rate::of(rate, Duration::from_secs(1))),
            delivery_rate: at
                .long(160)
                .filter(|rate| *rate > 0)
                .map(|rate| Rate::of(rate, Duration::from_secs(1))),
            delivery_rate_app_limited: at
                .byte(7)
                .filter(|_| bytes.len() >= 168)
                .map(|bits| bits & 1 != 0),
            busy: at.micros64(168),
            receive_window_limited: at.micros64(176),
            send_buffer_limited: at.micros64(184),
            bytes_acknowledged: at.long(120),
            bytes_received: at.long(128),
            bytes_not_sent: at.word(144),
            segments_duplicated: at.word(216),
            segments_out_of_order: at.word(224),
            peer_window: at.word(228),
            receive_window: at.word(232).filter(|window| *window > 0),
            selective_acknowledgement: option(0b0010),
            timestamps: option(0b0001),
            window_scaling: option(0b0100),
        }
    }

    /// Returns the rate that the congestion window allows: a window in each round trip. `None` before the
    /// first sample, or if the kernel does not report window and round-trip time.
    #[must_use]
    pub fn window_rate(&self) -> Option<Rate> {
        let bytes = u64::from(self.congestion_window?).saturating_mul(self.send_mss?.into());
        let round_trip = self.smoothed_rtt.filter(|rtt| !rtt.is_zero())?;
        Some(Rate::of(bytes, round_trip))
    }

    /// Returns whether sent data waits in a queue on the way: the smoothed round trip exceeds `least` (or
    /// else the smallest round trip that the kernel reports) by more than an eighth and by more than 2 ms,
    /// and data that arrives at `rate` during this delay fills four segments. A smaller delay may come from
    /// delayed acknowledgements.
    #[must_use]
    pub fn has_queue(&self, least: Option<Duration>, rate: Rate) -> bool {
        self.is_queue(least, self.smoothed_rtt, rate)
    }

    /// Returns whether arriving data waits in a queue on its way here. `earlier` is a reading of the same
    /// connection, `time` ago. The kernel measures round trips by the data that it sends. On a connection that
    /// mostly receives, that value is old, and the receiver's own estimate is better.
    #[must_use]
    pub fn has_queue_of_arrivals(&self, earlier: &Self, time: Duration) -> bool {
        /// Number of sent segments after which the mean is recent: older samples have almost no weight.
        const FRESH: u32 = 8;
        let Some(rate) = self.arrival_since(earlier, time) else { return false };
        let sent = self.data_segments_sent.zip(earlier.data_segments_sent);
        let is_fresh = sent.is_some_and(|(now, before)| now.wrapping_sub(before) >= FRESH);
        let newest = if is_fresh { self.smoothed_rtt } else { self.receive_rtt };
        self.is_queue(None, newest, rate)
    }

    fn is_queue(&self, least: Option<Duration>, now: Option<Duration>, rate: Rate) -> bool {
        const SEGMENTS: u64 = 4;
        let (Some(least), Some(now)) = (least.or(self.min_rtt), now) else { return false };
        let delay = now.saturating_sub(least);
        delay > (least / 8).max(Duration::from_millis(2))
            && rate.bytes_in(delay) >= SEGMENTS * u64::from(self.send_mss.unwrap_or(1448))
    }

    /// Returns the rate at which data has arrived since `earlier`, a reading of the same connection `time`
    /// ago.
    #[must_use]
    pub fn arrival_since(&self, earlier: &Self, time: Duration) -> Option<Rate> {
        let bytes = self.bytes_received?.saturating_sub(earlier.bytes_received?);
        Some(Rate::of(bytes, time))
    }

    /// Estimates how many segments were lost on their way here since `earlier`, a reading of the same
    /// connection `time` ago. After each lost segment about half of a window arrives out of order (in the lab
    /// 44 segments of 86).
    #[must_use]
    pub fn lost_before_arrival_since(&self, earlier: &Self, time: Duration) -> Option<f64> {
        let disordered = self.segments_out_of_order?.wrapping_sub(earlier.segments_out_of_order?);
        let arrived = self.data_segments_received?.wrapping_sub(earlier.data_segments_received?);
        let round_trips = time.as_secs_f64() / self.smoothed_rtt?.as_secs_f64();
        let window = f64::from(arrived) / round_trips;
        let behind = if window.is_finite() { (window / 2.0).max(1.0) } else { 1.0 };
        Some(f64::from(disordered) / behind)
    }

    /// Returns the number of segments lost on their way to the peer: the retransmitted segments without the
    /// duplicated ones. Duplicates occur because a queue that grows fast makes the sender believe that
    /// segments are lost.
    pub(crate) fn segments_lost(&self) -> Option<u32> {
        let duplicated = self.segments_duplicated.unwrap_or(0);
        Some(self.segments_retransmitted?.saturating_sub(duplicated))
    }

    /// Returns the share of data segments lost since `earlier`, a reading of the same connection, 0 to 1;
    /// `None` if too few were sent and too few were lost to judge.
    #[must_use]
    pub fn loss_since(&self, earlier: &Self) -> Option<f64> {
        const MIN_SENT: u32 = 1000;
        const MIN_LOST: u32 = 4;
        let sent = self.data_segments_sent?.wrapping_sub(earlier.data_segments_sent.unwrap_or(0));
        let lost = self.segments_lost()?.saturating_sub(earlier.segments_lost().unwrap_or(0));
        let is_significant = sent >= MIN_SENT || lost >= MIN_LOST;
        is_significant.then(|| (f64::from(lost) / f64::from(sent.max(1))).min(1.0))
    }
}

/// The structure `tcp_info`, as far as the kernel has filled it; offsets are those of Linux.
struct Layout<'a>(&'a [u8]);

impl Layout<'_> {
    fn byte(&self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    fn word(&self, offset: usize) -> Option<u32> {
        self.0.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn long(&self, offset: usize) -> Option<u64> {
        self.0.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    fn micros32(&self, offset: usize) -> Option<Duration> {
        self.word(offset).map(micros)
    }

    fn micros64(&self, offset: usize) -> Option<Duration> {
        self.long(offset).map(Duration::from_micros)
    }
}

fn micros(count: u32) -> Duration {
    Duration::from_micros(count.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a structure in which each 32-bit word holds its own offset.
    fn numbered(len: u8) -> Vec<u8> {
        (0..len).step_by(4).flat_map(|offset| u32::from(offset).to_ne_bytes()).collect()
    }

    fn long(low: u32, high: u32) -> u64 {
        let [low, high] = [low, high].map(u32::to_ne_bytes);
        u64::from_ne_bytes([low, high].concat().try_into().unwrap())
    }

    #[test]
    fn fields_are_where_linux_puts_them() {
        let info = TcpInfo::parse(&numbered(240));
        assert_eq!((info.send_mss, info.receive_mss), (Some(16), Some(20)));
        assert_eq!(info.segments_in_flight, Some(24));
        assert_eq!(info.path_mtu, Some(60));
        assert_eq!(info.smoothed_rtt, Some(Duration::from_micros(68)));
        assert_eq!(info.rtt_deviation, Some(Duration::from_micros(72)));
        assert_eq!((info.slow_start_threshold, info.congestion_window), (Some(76), Some(80)));
        assert_eq!(info.segments_retransmitted, Some(100));
        assert_eq!(info.bytes_acknowledged, Some(long(120, 124)));
        assert_eq!(info.bytes_received, Some(long(128, 132)));
        assert_eq!((info.segments_sent, info.segments_received), (Some(136), Some(140)));
        assert_eq!(info.bytes_not_sent, Some(144));
        assert_eq!(info.min_rtt, Some(Duration::from_micros(148)));
        assert_eq!(info.receive_rtt, Some(Duration::from_micros(92)));
        assert_eq!(info.data_segments_received, Some(152));
        assert_eq!(info.data_segments_sent, Some(156));
        assert_eq!(info.segments_duplicated, Some(216));
        assert_eq!(info.segments_out_of_order, Some(224));
        assert_eq!(info.busy, Some(Duration::from_micros(long(168, 172))));
        assert_eq!(info.receive_window_limited, Some(Duration::from_micros(long(176, 180))));
        assert_eq!(info.send_buffer_limited, Some(Duration::from_micros(long(184, 188))));
        assert_eq!((info.peer_window, info.receive_window), (Some(228), Some(232)));
    }

    #[test]
    fn flags_are_bits() {
        let mut bytes = numbered(240);
        (bytes[2], bytes[5], bytes[7]) = (7, 0b0101, 1);
        let info = TcpInfo::parse(&bytes);
        assert_eq!(info.timeouts_in_a_row, Some(7));
        assert_eq!(info.timestamps, Some(true));
        assert_eq!(info.selective_acknowledgement, Some(false));
        assert_eq!(info.window_scaling, Some(true));
        assert_eq!(info.delivery_rate_app_limited, Some(true));
    }

    #[test]
    fn values_that_mean_nothing_yet_are_none() {
        let mut bytes = vec![0; 240];
        bytes[148..152].fill(0xff);
        bytes[76..80].copy_from_slice(&0x7fff_ffff_u32.to_ne_bytes());
        let info = TcpInfo::parse(&bytes);
        assert_eq!((info.min_rtt, info.slow_start_threshold), (None, None));
        assert_eq!((info.delivery_rate, info.receive_window), (None, None));
    }

    #[test]
    fn a_kernel_that_tells_less_leaves_the_rest_open() {
        let whole = numbered(240);
        for len in 0..=whole.len() {
            let info = TcpInfo::parse(&whole[..len]);
            assert_eq!(info.send_mss.is_some(), len >= 20);
            assert_eq!(info.delivery_rate.is_some(), len >= 168);
            assert_eq!(info.busy.is_some(), len >= 176);
            assert_eq!(info.peer_window.is_some(), len >= 232);
        }
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }

    #[test]
    fn loss_is_a_share_of_what_was_sent_since() {
        let reading = |sent, again| TcpInfo {
            data_segments_sent: Some(sent),
            segments_retransmitted: Some(again),
            ..TcpInfo::default()
        };
        assert_eq!(reading(3000, 30).loss_since(&reading(1000, 10)), Some(0.01));
        assert_eq!(reading(1500, 13).loss_since(&reading(1000, 10)), None);
        // Few segments were sent, but so large a share was lost that the loss can hardly be chance.
        assert_eq!(reading(1100, 14).loss_since(&reading(1000, 10)), Some(0.04));
        // The counters wrap.
        assert_eq!(reading(1000, 0).loss_since(&reading(u32::MAX - 999, 0)), Some(0.0));
        assert_eq!(TcpInfo::default().loss_since(&TcpInfo::default()), None);
    }

    #[test]
    fn an_old_round_trip_tells_nothing_of_what_arrives() {
        let reading = |sent, smoothed, receive| TcpInfo {
            smoothed_rtt: Some(Duration::from_millis(smoothed)),
            receive_rtt: Some(Duration::from_millis(receive)),
            min_rtt: Some(Duration::from_millis(100)),
            bytes_received: Some(u64::from(sent) * 100_000),
            data_segments_sent: Some(sent),
            ..TcpInfo::default()
        };
        let queues = |sent, smoothed, receive| {
            reading(sent, smoothed, receive)
                .has_queue_of_arrivals(&reading(0, 100, 100), Duration::from_secs(1))
        };
        assert!(queues(100, 150, 100));
        assert!(!queues(100, 100, 150));
        assert!(!queues(2, 150, 100));
        assert!(queues(2, 100, 150));
        assert!(!TcpInfo::default().has_queue_of_arrivals(&TcpInfo::default(), Duration::ZERO));
    }

    #[test]
    fn what_arrives_has_a_rate_and_losses_too() {
        let reading = |bytes, segments, disordered| TcpInfo {
            smoothed_rtt: Some(Duration::from_millis(100)),
            bytes_received: Some(bytes),
            data_segments_received: Some(segments),
            segments_out_of_order: Some(disordered),
            ..TcpInfo::default()
        };
        let (before, second) = (reading(1000, 50, 7), Duration::from_secs(1));
        let after = reading(1_251_000, 1050, 207);
        assert_eq!(after.arrival_since(&before, second), "10mbit".parse().ok());
        // A hundred segments in a round trip; twice as many arrived behind a gap.
        assert_eq!(after.lost_before_arrival_since(&before, second), Some(4.0));
        assert_eq!(after.lost_before_arrival_since(&after, second), Some(0.0));
        let nothing = TcpInfo::default();
        assert_eq!(nothing.arrival_since(&nothing, second), None);
        assert_eq!(nothing.lost_before_arrival_since(&nothing, second), None);
        let still = TcpInfo { smoothed_rtt: Some(Duration::ZERO), ..before };
        assert_eq!(still.lost_before_arrival_since(&still, Duration::ZERO), Some(0.0));
    }
}
