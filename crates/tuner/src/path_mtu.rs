//! Paths that swallow long packets, and no ICMP message says so: path-MTU black holes (RFC 2923 §2.1).
//!
//! A router drops what is longer than its next link takes, and its message ("fragmentation needed", RFC 1191 §4; "packet too
//! big", RFC 8201 §4) is lost. Short packets pass, so a connection stands and a login succeeds; the first full segment, and all
//! behind it, never arrives. The kernel finds that out only where `net.ipv4.tcp_mtu_probing` is set, which is no option of a
//! socket.
//!
//! ```text
//! a connection stands still ([`StallWatch`]) ──► a trial ([`PathTrial`]): pings over connections of its own
//!
//!   full segments   short ping ─ answered    long ping ─ no answer ─────────────────────────┐
//!   1,200 bytes                                           long ping ─ answered ──► swallowed ◄┘
//!   536 bytes                                             (if 1,200 do not pass either)
//! ```
//! As in RFC 4821 §7 and RFC 8899 §4, length is the only thing that differs between what passes and what does not. A dead
//! link, a target that is gone, and a busy disk show the same stillness, and fail the trial in another way.
//!
//! Why it is so: `docs/design/path-mtu.md`.

use std::fmt;
use std::time::{Duration, Instant};

use crate::link::tcp_info::TcpInfo;

/// For at least so long, and so many round trips, nothing has come.
const SILENCE: Duration = Duration::from_secs(3);
const SILENT_TRIPS: u32 = 20;
/// The same where full segments have come before: it takes a change of the path, and most such silences are a busy disk's.
const LONG_SILENCE: Duration = Duration::from_secs(15);
/// A ping counts as not answered after so long, and so many times as long as a short one took: TCP has sent it again a few times
/// by then, and a queue that stood on the way has passed.
const UNANSWERED: Duration = Duration::from_secs(3);
const UNANSWERED_TRIPS: u32 = 8;

/// The way of what does not arrive.
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
    /// Sent data are not acknowledged in time, and were sent again. A single time may be an ordinary loss, but over a
    /// far link a target that waits for data gives the connection up before the second (LIO: 3 seconds).
    Unacknowledged,
    /// All sent data is acknowledged, and nothing is received.
    Silent,
}

impl Stall {
    /// Whether the path may be the cause, so that a trial is worth it. `awaited` is the number of bytes that the peer still has to send. A
    /// silent connection counts only if they exceed the segment length that is tried ([`SegmentLimit::SEGMENTS`]): TCP retransmits
    /// several short answers in one segment, and with jumbo frames one segment holds all answers at opening.
    #[must_use]
    pub const fn may_be_of_path(self, awaited: usize) -> bool {
        match self {
            Self::Unacknowledged => true,
            Self::Silent => awaited > SegmentLimit::SEGMENTS[0] as usize,
        }
    }
}

/// Looks whether a connection stands still as it would on a path that swallows long packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct StallWatch {
    /// The bytes received, and since when there are as many.
    received: Option<(u64, Instant)>,
}

impl StallWatch {
    /// Takes in a reading; returns the kind of stall that it shows, if there is one.
    ///
    /// A connection whose segments are not longer than the longest that is tried
    /// ([`SegmentLimit::SEGMENTS`]) is none of these.
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

    /// Ends a rest: the time before `now`, in which nothing was requested, does not count as
    /// silence.
    pub fn rested(&mut self, now: Instant) {
        self.received = self.received.map(|(received, _)| (received, now));
    }
}

/// Pings over two connections to the same peer, one with full segments and one with shorter ones; `None` is one that was not
/// answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PathTrial {
    /// A short ping over the connection with full segments.
    pub short: Option<Duration>,
    /// A ping longer than a full segment behind it.
    pub long: Option<Duration>,
    /// The time that the long ping was awaited.
    pub waited: Duration,
    /// The round trip of the same long ping over the connection with shorter segments.
    pub in_short_segments: Option<Duration>,
}

/// Results of a trial.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TrialVerdict {
    /// Full segments arrive, whatever else is wrong.
    Passes,
    /// Full segments do not arrive, shorter ones do.
    Swallowed,
    /// Nothing: shorter ones do not arrive either, or it was not waited for long enough.
    Unclear,
}

impl PathTrial {
    /// Returns how long to wait for a long ping, where a short one took `short`.
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

/// A limit of segments on a path that swallows longer ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SegmentLimit {
    /// The longest segment that is sent and asked for, bytes of payload and TCP options (`TCP_MAXSEG`).
    pub segment: u32,
    /// The packets that do not arrive, bytes.
    pub swallowed: u32,
    /// Where they do not arrive, if it was seen.
    pub way: Option<Way>,
}

impl SegmentLimit {
    /// The lengths of segments to try, in this order.
    pub const SEGMENTS: [u32; 2] = [1200, 536];

    /// The headers of IPv4 and TCP, without options, bytes.
    const HEADERS: u32 = 40;
    /// What a packet on Ethernet costs beside its bytes: header, checksum, preamble and gap.
    const FRAMING: u32 = 38;
    /// TCP's timestamps, which most connections have.
    const OPTIONS: u32 = 12;

    /// Creates the limit of segments to `segment` bytes, on a path that swallows packets of
    /// `swallowed` bytes.
    #[must_use]
    pub const fn new(segment: u32, swallowed: u32, way: Option<Way>) -> Self {
        Self { segment, swallowed, way }
    }

    /// The longest packets that are sent then over IPv4, bytes.
    #[must_use]
    pub const fn packet(&self) -> u32 {
        self.segment.saturating_add(Self::HEADERS)
    }

    /// The share of the rate that the shorter segments cost, 0 to 1: each brings its headers.
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

    /// Describes the defect of the way to the peer, and how to mend it, as a sentence without its full stop.
    #[must_use]
    pub fn explain(&self, peer: &str) -> String {
        format!("{}; {}; until then {}", self.finding(peer), Self::REMEDY, self.meanwhile())
    }

    /// Describes the defect of the way to the peer.
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

    /// The way to mend such a path.
    pub const REMEDY: &'static str = "let ICMP \"fragmentation needed\" (IPv6: \"packet too big\") pass on the way, or set the \
         MTU of this end's interface or route to what the path takes, or clamp the MSS on the router before the narrow link";

    /// Says what is done until the path is mended.
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

    /// What each kind of trouble shows a trial, and that only one of them is taken for a black hole.
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

    /// The second reading comes so many seconds behind the first.
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
