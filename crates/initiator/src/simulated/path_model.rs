//! Simulates a path that drops long segments, and what the kernel reports about a connection over it.

use std::time::{Duration, Instant};

use iscsi_tuner::TcpInfo;

/// Segment length of Ethernet without jumbo frames, with TCP timestamps, in bytes.
const FULL: usize = 1448;
/// Time to the first timeout; each further one takes twice as long.
const TIMEOUT: Duration = Duration::from_millis(300);

/// One connection over a path that drops long segments.
pub(super) struct PathModel {
    segment: usize,
    to_target: Way,
    to_initiator: Way,
}

struct Way {
    /// Longest segment that arrives, bytes.
    passing: usize,
    /// Time at which a segment was first dropped; nothing after it arrives.
    stuck: Option<Instant>,
    bytes: u64,
    longest: usize,
}

impl PathModel {
    pub(super) fn new([to_target, to_initiator]: [usize; 2], limit: Option<u32>) -> Self {
        let segment = limit.map_or(FULL, |limit| limit as usize - 12);
        let way = |passing| Way { passing, stuck: None, bytes: 0, longest: 0 };
        Self { segment, to_target: way(to_target), to_initiator: way(to_initiator) }
    }

    /// Returns whether `count` bytes, written by one call, arrive at the target.
    pub(super) fn carries_to_target(&mut self, count: usize, now: Instant) -> bool {
        self.to_target.carries(count, self.segment, now)
    }

    /// Returns whether `count` bytes, written by one call, arrive at the initiator.
    pub(super) fn carries_to_initiator(&mut self, count: usize, now: Instant) -> bool {
        self.to_initiator.carries(count, self.segment, now)
    }

    pub(super) fn fill_info(&self, info: &mut TcpInfo, now: Instant) {
        let (out, back) = (&self.to_target, &self.to_initiator);
        info.timestamps = Some(true);
        info.send_mss = u32::try_from(self.segment).ok();
        info.receive_mss = u32::try_from(back.longest.max(536)).ok();
        info.timeouts_in_a_row = Some(out.stuck.map_or(0, |since| timeouts(now - since)));
        info.segments_in_flight = Some(if out.stuck.is_some() { 10 } else { 0 });
        info.bytes_received = Some(back.bytes);
    }
}

impl Way {
    fn carries(&mut self, count: usize, segment: usize, now: Instant) -> bool {
        let longest = count.min(segment);
        if longest > self.passing {
            self.stuck.get_or_insert(now);
        }
        if self.stuck.is_some() {
            return false;
        }
        self.longest = self.longest.max(longest);
        self.bytes += count as u64;
        true
    }
}

/// Returns the number of retransmission timeouts within `time`, if each takes twice as long as the one before.
fn timeouts(time: Duration) -> u32 {
    let at = |count: &u32| TIMEOUT * ((2 << count) - 1);
    (0..16).take_while(|count| at(count) <= time).fold(0, |count, _| count + 1)
}
