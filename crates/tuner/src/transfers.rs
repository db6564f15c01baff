//! Plans the transfers above TCP: the round trips of each, the best length, and the number in flight.
//!
//! ```text
//! round trips of a write = 1 + ceil((length - unsolicited) / (burst x concurrent bursts))
//! bytes in flight       >= bandwidth x round-trip time x round trips
//! ```
//! After a lost segment, the later segments wait in the receiver for another round trip.

use crate::size::Size;

/// The terms of transfers that initiator and target have negotiated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TransferTerms {
    /// Bytes of a write that are sent unsolicited.
    pub unsolicited: u64,
    /// Bytes that the peer requests in one burst, not 0.
    pub burst: u64,
    /// The number of bursts that may be outstanding for one write, not 0.
    pub bursts_at_once: u32,
    /// The number of commands that the peer accepts concurrently; `None` if it has not reported that number.
    pub window: Option<u32>,
}

impl Default for TransferTerms {
    /// Returns the defaults of RFC 7143 §13, and the command window of the Linux target.
    fn default() -> Self {
        Self { unsolicited: 65_536, burst: 262_144, bursts_at_once: 1, window: Some(64) }
    }
}

/// Properties of a link that transfers depend on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LinkTraits {
    /// Bytes that fill the link.
    pub(crate) in_flight: u64,
    /// Whether round trips have no noticeable cost.
    pub(crate) is_local: bool,
    /// Whether losses are so frequent that in most round trips a segment is lost, which costs another round
    /// trip.
    pub(crate) is_lossy: bool,
    /// Whether round trips are the largest part of a transfer's time.
    pub(crate) is_long: bool,
    /// Whether the link is so long that requested data may arrive after the peer's time limit.
    pub(crate) is_far: bool,
}

/// Length of a transfer, number of transfers in flight, and round trips of each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TransferQueue {
    pub(crate) io_size: u64,
    pub(crate) depth: u64,
    pub(crate) round_trips: u64,
}

/// Lengths of writes to choose from. Short writes keep the last round trips short, long ones need fewer
/// commands. Below 256 KiB commands cost more than shorter writes gain, except over far links.
const WRITE_SIZES: [u64; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Shortest write that has unsolicited data only, bytes; such writes are whole pages.
const MIN_UNSOLICITED: u64 = 32 << 10;
const PAGE: u64 = 4 << 10;
/// Lengths of reads to choose from. A read takes one round trip at any length, so it may be long. Over 1
/// Gbit/s, 512 KiB are as good as 1 MiB.
const READ_SIZES: [u64; 4] = [LONG_COMMAND, 1 << 20, 2 << 20, 4 << 20];
/// Length of reads over a long link, bytes: enough of them are in flight, and shorter reads need less memory.
/// Half of this length takes a fifth more processor time, without a gain.
const SHORT_READ: u64 = 256 << 10;
/// Length of transfers where round trips have no noticeable cost.
const LOCAL_SIZE: u64 = 1 << 20;
/// Shortest long command, bytes. Long commands need [`MIN_UNDER_WAY_LONG`] bytes in flight.
const LONG_COMMAND: u64 = 512 << 10;
/// Bytes in flight even on the shortest link, so that neither host waits for the other.
const MIN_UNDER_WAY: u64 = 4 << 20;
/// Bytes in flight even on the shortest link if commands are long, because the caller uses the data of a
/// command only when the command is complete.
const MIN_UNDER_WAY_LONG: u64 = 8 << 20;
/// Largest number of bytes in flight: a copy holds them in memory twice.
const MAX_UNDER_WAY: u64 = 64 << 20;
const MIN_DEPTH: u64 = 2;
const MAX_DEPTH: u64 = 256;

impl TransferTerms {
    /// Creates the terms from the unsolicited bytes, the bytes of one burst, the number of concurrent bursts,
    /// and the command window, if it is known.
    #[must_use]
    pub const fn new(
        unsolicited: u64,
        burst: u64,
        bursts_at_once: u32,
        window: Option<u32>,
    ) -> Self {
        Self { unsolicited, burst, bursts_at_once, window }
    }

    /// Returns the round trips of a write of `length` bytes.
    #[must_use]
    pub fn round_trips(&self, length: u64) -> u64 {
        let round = self.burst.max(1).saturating_mul(self.bursts_at_once.max(1).into());
        1 + length.saturating_sub(self.unsolicited).div_ceil(round)
    }

    /// Returns the round trips of a write, with those that losses cost.
    fn round_trips_over(&self, length: u64, link: LinkTraits) -> u64 {
        self.round_trips(length).saturating_mul(if link.is_lossy { 2 } else { 1 })
    }

    /// Returns the largest number of commands in flight.
    fn max_depth(&self) -> u64 {
        self.window.map_or(MAX_DEPTH, |window| u64::from(window).clamp(1, MAX_DEPTH))
    }

    /// Returns the bytes of transfers in flight that keep `link.in_flight` bytes on the link. This is 1.5
    /// times the bytes that the round trips need, because bursts do not arrive evenly.
    fn under_way(&self, io_size: u64, link: LinkTraits) -> u64 {
        let least = if io_size < LONG_COMMAND { MIN_UNDER_WAY } else { MIN_UNDER_WAY_LONG };
        let busy =
            link.in_flight.saturating_mul(self.round_trips_over(io_size, link)).saturating_mul(3)
                / 2;
        busy.clamp(least, MAX_UNDER_WAY)
    }

    /// Returns the queue of writes of this length, within the command window.
    pub(crate) fn queue_of(&self, io_size: u64, link: LinkTraits) -> TransferQueue {
        let io_size = io_size.max(1);
        let wanted = self.under_way(io_size, link).div_ceil(io_size);
        let depth = wanted.max(MIN_DEPTH).min(self.max_depth());
        TransferQueue { io_size, depth, round_trips: self.round_trips_over(io_size, link) }
    }

    /// Returns the shortest writes that fill the link within the command window, or else the writes that fill
    /// it most. Over a far link it returns writes of unsolicited data only, if these have at least a third as
    /// many bytes on the link as the other writes would have: more connections fill the rest.
    pub(crate) fn write_queue(&self, link: LinkTraits) -> TransferQueue {
        let queue = self.queue_among(&WRITE_SIZES, link);
        let unasked = self.queue_of(self.unsolicited.min(WRITE_SIZES[0]) & !(PAGE - 1), link);
        let is_worth =
            unasked.io_size >= MIN_UNSOLICITED && 3 * unasked.in_flight() >= queue.in_flight();
        if link.is_far && is_worth { unasked } else { queue }
    }

    /// Returns the terms of reads, for which the peer requests nothing.
    pub(crate) const fn of_reads(&self) -> Self {
        Self { unsolicited: u64::MAX, ..*self }
    }

    /// Returns the queue of reads: the peer sends all data of a command in one round trip.
    pub(crate) fn read_queue(&self, link: LinkTraits) -> TransferQueue {
        let terms = self.of_reads();
        let short = terms.queue_of(SHORT_READ, link);
        if link.is_long && terms.is_enough(&short, link) {
            return short;
        }
        terms.queue_among(&READ_SIZES, link)
    }

    /// Returns whether the command window allows as many transfers as the link needs.
    fn is_enough(&self, queue: &TransferQueue, link: LinkTraits) -> bool {
        queue.depth * queue.io_size >= self.under_way(queue.io_size, link)
    }

    fn queue_among(&self, sizes: &[u64], link: LinkTraits) -> TransferQueue {
        if link.is_local {
            return self.queue_of(LOCAL_SIZE, link);
        }
        let queues = sizes.iter().map(|io_size| self.queue_of(*io_size, link));
        let most = |queue: &&TransferQueue| {
            // Of equally good lengths, prefer the shorter.
            (queue.depth * queue.io_size / queue.round_trips, u64::MAX - queue.io_size)
        };
        let chosen = queues.clone().find(|queue| self.is_enough(queue, link));
        chosen
            .or_else(|| queues.max_by_key(|queue| most(&queue)))
            .unwrap_or_else(|| self.queue_of(LOCAL_SIZE, link))
    }
}

impl TransferQueue {
    /// Returns the bytes that are on the link at the same time.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.depth * self.io_size / self.round_trips
    }

    pub(crate) fn describe(&self) -> String {
        match self.round_trips {
            1 => format!("{} in flight, one round trip each", Size(self.depth * self.io_size)),
            trips => {
                format!(
                    "{} in flight, {trips} round trips a write",
                    Size(self.depth * self.io_size)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default terms of the Linux target.
    const LIO: TransferTerms =
        TransferTerms { unsolicited: 65_536, burst: 262_144, bursts_at_once: 1, window: Some(64) };

    const fn far(in_flight: u64) -> LinkTraits {
        LinkTraits { in_flight, is_local: false, is_lossy: false, is_long: false, is_far: false }
    }

    #[test]
    fn a_write_takes_a_round_trip_for_each_round_of_bursts() {
        assert_eq!([0, 65_536, 65_537, 1 << 20].map(|len| LIO.round_trips(len)), [1, 1, 2, 5]);
        let asked = TransferTerms { unsolicited: 0, bursts_at_once: 4, ..LIO };
        assert_eq!([1, 1 << 20, (1 << 20) + 1].map(|len| asked.round_trips(len)), [2, 2, 3]);
    }

    #[test]
    fn nonsense_terms_are_survived() {
        let nothing =
            TransferTerms { unsolicited: 0, burst: 0, bursts_at_once: 0, window: Some(0) };
        assert_eq!(nothing.round_trips(4), 5);
        let queue = nothing.write_queue(far(u64::MAX));
        assert_eq!(queue.depth, 1);
        assert!(queue.io_size > 0);
    }

    #[test]
    fn writes_grow_when_the_window_is_short() {
        let narrow = TransferTerms { window: Some(4), ..LIO };
        assert!(narrow.write_queue(far(1 << 20)).io_size > LIO.write_queue(far(1 << 20)).io_size);
    }

    #[test]
    fn where_round_trips_cost_nothing_commands_are_few() {
        let queue = LIO.write_queue(LinkTraits { is_local: true, ..far(10_000) });
        assert_eq!((queue.io_size, queue.depth), (1 << 20, 8));
    }

    /// With few reads in flight, the link would be idle whenever a read is late.
    #[test]
    fn several_long_reads_wait_for_their_turn() {
        let queue = LIO.read_queue(far(1 << 20));
        assert_eq!((queue.io_size, queue.depth), (512 << 10, 16));
    }

    /// A target closes the connection if requested data arrives too late, so all write data is unsolicited.
    #[test]
    fn over_a_far_link_nothing_is_asked_for() {
        let link = LinkTraits { is_far: true, ..far(4 << 20) };
        let queue = LIO.write_queue(link);
        assert_eq!((queue.io_size, queue.depth, queue.round_trips), (64 << 10, 64, 1));
        let eager = TransferTerms { unsolicited: 1 << 20, ..LIO };
        assert_eq!(eager.write_queue(link).io_size, 256 << 10);
        // If fewer than `MIN_UNSOLICITED` bytes are unsolicited, or if the command window is too short for
        // such writes, writes have the same length as on other links.
        for terms in
            [TransferTerms { unsolicited: 8192, ..LIO }, TransferTerms { window: Some(4), ..LIO }]
        {
            assert_eq!(terms.write_queue(link), terms.write_queue(far(4 << 20)));
        }
    }

    #[test]
    fn over_a_long_link_reads_are_short_if_the_window_takes_enough() {
        let link = LinkTraits { is_long: true, ..far(4 << 20) };
        let queue = LIO.read_queue(link);
        assert_eq!((queue.io_size, queue.depth), (256 << 10, 24));
        let narrow = TransferTerms { window: Some(16), ..LIO };
        assert_eq!(narrow.read_queue(link), narrow.read_queue(far(4 << 20)));
    }

    #[test]
    fn where_much_is_lost_twice_as_much_is_under_way() {
        let lossy = LinkTraits { is_lossy: true, ..far(2_500_000) };
        let (with, without) = (LIO.write_queue(lossy), LIO.write_queue(far(2_500_000)));
        assert_eq!((with.round_trips, without.round_trips), (4, 2));
        assert_eq!(with.io_size, without.io_size);
        assert!(with.depth >= 2 * without.depth - 1, "{with:?} {without:?}");
        assert_eq!(LIO.read_queue(lossy).round_trips, 2);
    }

    #[test]
    fn the_link_is_full_whenever_the_window_allows() {
        for in_flight in [100_000, 1_250_000, 2_500_000, 5_000_000] {
            let queue = LIO.write_queue(far(in_flight));
            assert!(queue.in_flight() >= in_flight, "{in_flight}: {queue:?}");
            assert!(queue.depth <= 64);
        }
    }

    /// R2Ts cost writes a round trip, but reads need none.
    #[test]
    fn half_as_many_reads_as_long_writes_fill_a_link() {
        let link = far(12 << 20);
        let depth = |terms: TransferTerms| terms.queue_of(256 << 10, link).depth;
        assert_eq!((depth(LIO), depth(LIO.of_reads())), (64, 64), "all that the peer takes");
        let wide = TransferTerms { window: None, ..LIO };
        assert_eq!((depth(wide), depth(wide.of_reads())), (144, 72));
    }
}
