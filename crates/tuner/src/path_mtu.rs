//! Detects paths that drop long packets without an ICMP message: path-MTU black holes (RFC 2923 §2.1).
//!
//! A router drops a packet that is longer than its next link takes, and its message ("fragmentation needed",
//! RFC 1191 §4; "packet too big", RFC 8201 §4) is lost. Short packets pass, so that the connection is made
//! and the login succeeds. The first full segment never arrives, nor does anything after it. The kernel
//! detects that only with `net.ipv4.tcp_mtu_probing`, which is not a socket option.
//!
//! ```text
//! a connection makes no progress ([`StallWatch`]) ──► a trial ([`PathTrial`]): pings over connections of its own
//!
//!   full segments   short ping ─ answered    long ping ─ no answer ─────────────────────────┐
//!   1,200 bytes                                           long ping ─ answered ──► swallowed ◄┘
//!   536 bytes                                             (if 1,200 do not pass either)
//! ```
//! As in RFC 4821 §7 and RFC 8899 §4, only the length differs between packets that pass and packets that do
//! not. A dead link, a host that is down and a busy disk cause the same silence, but a different result of
//! the trial.
//!
//! Design: `docs/design/path-mtu.md`.

use std::fmt;
use std::time::{Duration, Instant};

use crate::link::tcp_info::TcpInfo;

/// Shortest silence that counts as a stall.
const SILENCE: Duration = Duration::from_secs(3);
/// Shortest silence that counts as a stall, in round trips, if that is longer.
const SILENT_TRIPS: u32 = 20;
/// Shortest silence that counts as a stall if full segments have arrived before: a change of the path is less
/// likely than a busy disk.
const LONG_SILENCE: Duration = Duration::from_secs(15);
/// Shortest time after which a ping counts as unanswered. By then TCP has retransmitted it a few times, and a
/// queue on the way has become empty.
const UNANSWERED: Duration = Duration::from_secs(3);
/// Shortest time after which a ping counts as unanswered, in round trips of a short ping, if that is longer.
const UNANSWERED_TRIPS: u32 = 8;

/// Direction in which packets do not arrive.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Way {
    /// From this end to the peer.
    ToPeer,
    /// From the peer to this end.
    FromPeer,
}

/// Kinds of stalls of a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stall {
    /// Sent data was not acknowledged in time, and was retransmitted. Even a single retransmission counts,
    /// although it may be an ordinary loss: over a far link, a target that waits for data closes the
    /// connection before the second retransmission (LIO: 3 seconds).
    Unacknowledged,
    /// All sent data is acknowledged, and nothing is received.
    Silent,
}

impl Stall {
    /// Returns whether the path may be the cause, so that a trial is useful. `awaited` is the number of bytes
    /// that the peer still has to send. For a silent connection, the path may be the cause only if they
    /// exceed the longest segment of a trial ([`SegmentLimit::SEGMENTS`]): fewer bytes arrive on such a path
    /// too. All awaited answers count together, because TCP retransmits several short answers in one segment;
    /// with jumbo frames one segment holds all answers that open a session.
    #[must_use]
    pub const fn may_be_of_path(self, awaited: usize) -> bool {
        match self {
            Self::Unacknowledged => true,
            Self::Silent => awaited > SegmentLimit::SEGMENTS[0] as usize,
        }
    }
}

/// Detects that a connection stalls as it would on a path that drops long packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct StallWatch {
    /// The number of bytes received, and the time of the first reading with this number.
    received: Option<(u64, Instant)>,
}

impl StallWatch {
    /// Takes a reading, and returns the kind of stall that it shows, if any.
    ///
    /// A connection whose segments are no longer than those that a trial would use
    /// ([`SegmentLimit::SEGMENTS`]) cannot stall for this reason, so the result is `None`.
    pub fn observe(&mut self, info: &TcpInfo, now: Instant) -> Option<Stall> {
        let received = info.bytes_received?;
        let since = match self.received {
            Some((before, since)) if before == received => since,
            Some(_) | None => now,
        };
        self.received = Some((received, since));
        let full =
            info.send_mss.filter(|mss| SegmentLimit::SEGMENTS.iter().all(|try_| mss > try_))?;
        if info.timeouts_in_a_row? > 0 {
            return Some(Stall::Unacknowledged);
        }
        let trips = info.smoothed_rtt.unwrap_or_default().saturating_mul(SILENT_TRIPS);
        let has_had_full_ones = info.receive_mss? >= full;
        let patience = if has_had_full_ones { LONG_SILENCE } else { SILENCE };
        let is_silent = now.saturating_duration_since(since) >= patience.max(trips);
        let is_acknowledged =
            info.segments_in_flight? == 0 && info.bytes_not_sent.unwrap_or(0) == 0;
        (is_silent && is_acknowledged).then_some(Stall::Silent)
    }

    /// Restarts the time of silence at `now`, because nothing was requested before.
    pub fn rested(&mut self, now: Instant) {
        self.received = self.received.map(|(received, _)| (received, now));
    }
}

/// Results of pings over two connections to the same peer, one with full segments and one with shorter
/// segments; `None` means that a ping was not answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PathTrial {
    /// Round trip of a short ping over the connection with full segments.
    pub short: Option<Duration>,
    /// Round trip of a ping longer than a full segment, sent after the short one.
    pub long: Option<Duration>,
    /// How long the answer to the long ping was awaited.
    pub waited: Duration,
    /// Round trip of the same long ping over the connection with shorter segments.
    pub in_short_segments: Option<Duration>,
}

/// Results of a trial.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TrialVerdict {
    /// Full segments arrive, so the path is not the cause.
    Passes,
    /// Full segments do not arrive, shorter ones do: the path drops long packets.
    Swallowed,
    /// The result is unclear: shorter segments do not arrive either, or the trial did not wait long enough.
    Unclear,
}

impl PathTrial {
    /// Returns how long to wait for a long ping, if a short one took `short`.
    #[must_use]
    pub fn patience(short: Duration) -> Duration {
        UNANSWERED.max(short.saturating_mul(UNANSWERED_TRIPS))
    }

    /// Returns the result of the trial.
    #[must_use]
    pub fn verdict(&self) -> TrialVerdict {
        let Self { short, long, waited, in_short_segments } = *self;
        match (short, long, in_short_segments) {
            (_, Some(_), _) => TrialVerdict::Passes,
            (Some(short), None, Some(other)) if waited >= Self::patience(short.max(other)) => {
                TrialVerdict::Swallowed
            }
            (_, None, _) => TrialVerdict::Unclear,
        }
    }
}

/// Limit of the segment length on a path that drops longer packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SegmentLimit {
    /// Longest segment that is sent and requested, bytes of payload and TCP options (`TCP_MAXSEG`).
    pub segment: u32,
    /// Length of the packets that do not arrive, bytes.
    pub swallowed: u32,
    /// Direction in which the packets do not arrive, if it is known.
    pub way: Option<Way>,
}

impl SegmentLimit {
    /// The segment lengths to try, in this order.
    pub const SEGMENTS: [u32; 2] = [1200, 536];

    /// Headers of IPv4 and TCP, without options, bytes.
    const HEADERS: u32 = 40;
    /// Bytes on Ethernet beside those of the packet: header, checksum, preamble and gap.
    const FRAMING: u32 = 38;
    /// Length of TCP timestamps, an option that most connections have, bytes.
    const OPTIONS: u32 = 12;

    /// Creates a limit of `segment` bytes, for a path that drops packets of `swallowed` bytes.
    #[must_use]
    pub const fn new(segment: u32, swallowed: u32, way: Option<Way>) -> Self {
        Self { segment, swallowed, way }
    }

    /// Returns the longest packet that is sent over IPv4 with this limit, bytes.
    #[must_use]
    pub const fn packet(&self) -> u32 {
        self.segment.saturating_add(Self::HEADERS)
    }

    /// Returns the share of the rate that shorter segments cost, 0 to 1, because each has its own headers.
    #[must_use]
    pub fn cost(&self) -> f64 {
        let share = |packet: u32| {
            let payload = packet.saturating_sub(Self::HEADERS + Self::OPTIONS);
            f64::from(payload) / f64::from(packet.saturating_add(Self::FRAMING))
        };
        (1.0 - share(self.packet()) / share(self.swallowed).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    }

    /// Returns the reason, as a sentence without its full stop.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { swallowed, .. } = self;
        format!("packets of {swallowed} bytes do not arrive, and no ICMP message says so")
    }

    /// Describes the defect of the path to the peer, and how to repair it, as a sentence without its full
    /// stop.
    #[must_use]
    pub fn explain(&self, peer: &str) -> String {
        format!("{}; {}; until then {}", self.finding(peer), Self::REMEDY, self.meanwhile())
    }

    /// Describes the defect of the path to the peer.
    #[must_use]
    pub fn finding(&self, peer: &str) -> String {
        let Self { swallowed, .. } = self;
        let way = match self.way {
            Some(Way::ToPeer) => format!("packets of {swallowed} bytes do not arrive at {peer}"),
            Some(Way::FromPeer) => {
                format!("packets of {swallowed} bytes from {peer} do not arrive here")
            }
            None => format!("packets of {swallowed} bytes do not pass between here and {peer}"),
        };
        let passing = self.packet();
        format!(
            "{way}, packets of {passing} bytes do, and no ICMP message says so: a path-MTU black hole"
        )
    }

    /// Remedy: how to repair such a path.
    pub const REMEDY: &'static str = "let ICMP \"fragmentation needed\" (IPv6: \"packet too big\") pass on the way, or set the \
         MTU of this end's interface or route to what the path takes, or clamp the MSS on the router before the narrow link";

    /// Describes what this host does until the path is repaired.
    #[must_use]
    pub fn meanwhile(&self) -> String {
        format!(
            "segments have {} bytes, which costs {:.0} % of the rate",
            self.segment,
            self.cost() * 100.0
        )
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToPeer => "to the peer",
            Self::FromPeer => "from the peer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(count: u64) -> Option<Duration> {
        Some(Duration::from_secs(count))
    }

    const fn millis(count: u64) -> Option<Duration> {
        Some(Duration::from_millis(count))
    }

    /// Each case has its verdict: only a difference by length counts as a black hole.
    #[test]
    fn only_length_makes_a_black_hole() {
        use TrialVerdict::{Passes, Swallowed, Unclear};
        for (what, short, long, waited, in_short_segments, verdict) in [
            ("a black hole, 100 ms", millis(100), None, secs(3), millis(102), Swallowed),
            ("a black hole, 600 ms", millis(600), None, secs(5), millis(600), Swallowed),
            ("a black hole, no distance", millis(0), None, secs(3), millis(1), Swallowed),
            ("a black hole below 536 bytes", millis(100), None, secs(30), None, Unclear),
            ("a busy disk", millis(100), millis(101), secs(0), None, Passes),
            ("a target that is gone", None, None, secs(0), None, Unclear),
            ("a target that is gone, and back", None, None, secs(30), millis(100), Unclear),
            ("a link that dies during the trial", millis(100), None, secs(30), None, Unclear),
            ("a loss that is sent again", millis(100), millis(1300), secs(0), None, Passes),
            ("64 kbit/s behind a queue of 5 s", secs(5), None, secs(20), secs(6), Unclear),
            ("the same, waited for", secs(5), secs(6), secs(48), secs(6), Passes),
            ("a queue that has grown meanwhile", millis(200), None, secs(4), secs(4), Unclear),
        ] {
            let waited = waited.unwrap_or_default();
            let trial = PathTrial { short, long, waited, in_short_segments };
            assert_eq!(trial.verdict(), verdict, "{what}");
        }
    }

    fn reading(timeouts: u32, in_flight: u32, received: u64, receive_mss: u32) -> TcpInfo {
        TcpInfo {
            smoothed_rtt: millis(100),
            send_mss: Some(1448),
            receive_mss: Some(receive_mss),
            timeouts_in_a_row: Some(timeouts),
            segments_in_flight: Some(in_flight),
            bytes_not_sent: Some(0),
            bytes_received: Some(received),
            ..TcpInfo::default()
        }
    }

    /// Returns the stall after two readings, `seconds` apart.
    fn stall(readings: [TcpInfo; 2], seconds: u64) -> Option<Stall> {
        let (mut watch, now) = (StallWatch::default(), Instant::now());
        watch.observe(&readings[0], now);
        watch.observe(&readings[1], now + Duration::from_secs(seconds))
    }

    #[test]
    fn a_peer_that_owes_less_than_passes_anyway_is_only_silent() {
        assert!(Stall::Unacknowledged.may_be_of_path(0));
        assert!(!Stall::Silent.may_be_of_path(1200) && Stall::Silent.may_be_of_path(1201));
    }

    #[test]
    fn stillness_is_timeouts_or_silence() {
        let login = reading(0, 0, 900, 536);
        for (what, second, seconds, expected) in [
            ("a timeout", reading(1, 10, 900, 536), 1, Some(Stall::Unacknowledged)),
            ("on its way", reading(0, 10, 900, 536), 1, None),
            ("nothing comes", reading(0, 0, 900, 536), 3, Some(Stall::Silent)),
            ("not long yet", reading(0, 0, 900, 536), 2, None),
            ("a little comes", reading(0, 0, 948, 536), 30, None),
            ("full segments came before", reading(0, 0, 900, 1448), 14, None),
            ("and for long no more", reading(0, 0, 900, 1448), 15, Some(Stall::Silent)),
            ("something is on its way", reading(0, 1, 900, 536), 30, None),
            (
                "short segments",
                TcpInfo { send_mss: Some(1188), ..reading(9, 9, 900, 536) },
                9,
                None,
            ),
            ("nothing is told", TcpInfo::default(), 9, None),
        ] {
            assert_eq!(stall([login, second], seconds), expected, "{what}");
        }
        let far = |reading| TcpInfo { smoothed_rtt: millis(600), ..reading };
        assert_eq!(stall([far(login); 2], 11), None, "20 round trips");
        assert_eq!(stall([far(login); 2], 12), Some(Stall::Silent));
    }

    #[test]
    fn a_rest_is_no_silence() {
        let (mut watch, now) = (StallWatch::default(), Instant::now());
        let login = reading(0, 0, 900, 536);
        watch.observe(&login, now);
        watch.rested(now + Duration::from_secs(60));
        assert_eq!(watch.observe(&login, now + Duration::from_secs(61)), None);
        let silent = watch.observe(&login, now + Duration::from_secs(63));
        assert_eq!(silent, Some(Stall::Silent));
    }

    #[test]
    fn people_are_told_what_to_do_and_what_it_costs() {
        let told = |segment, swallowed, way| {
            SegmentLimit::new(segment, swallowed, way).explain("192.0.2.1:3260")
        };
        let text = told(1200, 1500, Some(Way::ToPeer));
        assert!(
            text.starts_with("packets of 1500 bytes do not arrive at 192.0.2.1:3260, "),
            "{text}"
        );
        assert!(text.ends_with("segments have 1200 bytes, which costs 1 % of the rate"), "{text}");
        assert!(text.contains("clamp the MSS"), "{text}");
        let text = told(1200, 9000, Some(Way::FromPeer));
        assert!(text.starts_with("packets of 9000 bytes from 192.0.2.1:3260 do not arrive here"));
        assert!(text.ends_with("costs 6 % of the rate"), "{text}");
        assert!(told(536, 1500, None).ends_with("which costs 9 % of the rate"));
        for (segment, swallowed) in [(0, 0), (u32::MAX, 0), (0, u32::MAX), (1200, 40)] {
            let cost = SegmentLimit::new(segment, swallowed, None).cost();
            assert!((0.0..=1.0).contains(&cost), "{cost}");
        }
    }
}
