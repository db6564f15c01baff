//! The numbers of a copy, and why they are what they are.

use std::time::Duration;

use iscsi_initiator::Negotiated;
use serde_json::{Value, json};

use crate::args::{DEFAULT_IO_SIZE, QueueDepth};
use crate::end::{End, UnitEnd};
use crate::pump::Shape;
use crate::size::Size;

/// The link that is assumed, bytes a second: 1 Gbit/s.
const LINK: u64 = 125_000_000;
/// The least that is kept under way: enough for any local network.
const LEAST_IN_FLIGHT: u64 = 8 << 20;
/// The most that is kept under way unless asked for: memory holds twice that.
const MOST_IN_FLIGHT: u64 = 32 << 20;
/// Enough to read and write at the same time where no link lies between.
const LOCAL_QUEUE: usize = 8;
const SHORTEST_QUEUE: u64 = 2;
const LONGEST_QUEUE: u64 = 256;

/// A number, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The number.
    pub value: usize,
    /// Why it is that.
    pub reason: String,
}

impl Choice {
    fn new(value: usize, reason: impl Into<String>) -> Self {
        Self { value, reason: reason.into() }
    }

    fn to_json(&self) -> Value {
        json!({ "value": self.value, "reason": self.reason })
    }
}

/// What a copy has decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Bytes of one read or write.
    pub io_size: Choice,
    /// Writes, and as many reads, under way at once.
    pub queue_depth: Choice,
}

/// What a unit at one end asks of the queue.
#[derive(Clone, Copy, Debug)]
struct Demand {
    round_trip: Duration,
    /// Round trips that one command takes.
    rounds: u64,
}

impl Plan {
    /// Decides from what was asked for, and from what the ends are.
    pub fn new(io_size: Size, depth: QueueDepth, source: &End, destination: &End) -> Self {
        let block =
            [source, destination].into_iter().filter_map(End::unit).map(UnitEnd::block_size);
        let io_size = choose_io_size(io_size.as_usize(), block.max());
        let reads = source.unit().map(|unit| Demand { round_trip: unit.round_trip(), rounds: 1 });
        let writes = destination.unit().map(|unit| Demand {
            round_trip: unit.round_trip(),
            rounds: rounds_of_a_write(&unit.negotiated(), io_size.value as u64),
        });
        let queue_depth = match depth {
            QueueDepth::Fixed(depth) => Choice::new(depth.get(), "as asked for by --queue-depth"),
            QueueDepth::Auto => choose_queue_depth(io_size.value as u64, [reads, writes]),
        };
        Self { io_size, queue_depth }
    }

    /// The numbers alone.
    pub fn shape(&self) -> Shape {
        Shape { io_size: self.io_size.value, queue_depth: self.queue_depth.value }
    }

    /// The plan for programs, with the ends it was made for.
    pub fn to_json(&self, source: &End, destination: &End) -> Value {
        json!({
            "source": source.to_json(),
            "destination": destination.to_json(),
            "io_size": self.io_size.to_json(),
            "queue_depth": self.queue_depth.to_json(),
        })
    }
}

fn choose_io_size(wanted: usize, block: Option<usize>) -> Choice {
    let whole = block.map_or(wanted, |block| wanted.next_multiple_of(block.max(1)));
    if whole != wanted {
        return Choice::new(whole, "rounded up to whole blocks, so that none is written in parts");
    }
    if wanted == DEFAULT_IO_SIZE.as_usize() {
        return Choice::new(
            wanted,
            "long enough to be worth a command, short enough for a slow link",
        );
    }
    Choice::new(wanted, "as asked for by --io-size")
}

/// Enough chunks to fill the link while the first of them makes its way.
fn choose_queue_depth(io_size: u64, demands: [Option<Demand>; 2]) -> Choice {
    let demands = demands.into_iter().flatten().map(|demand| (in_flight(demand), demand));
    let Some((bytes, demand)) = demands.max_by_key(|(bytes, _)| *bytes) else {
        return Choice::new(LOCAL_QUEUE, "no link lies between: enough to read and write at once");
    };
    let chosen = bytes.clamp(LEAST_IN_FLIGHT, MOST_IN_FLIGHT);
    let depth = chosen.div_ceil(io_size).clamp(SHORTEST_QUEUE, LONGEST_QUEUE);
    let under_way = Size(depth * io_size);
    let trip = format!("a round trip of {:.3} ms", demand.round_trip.as_secs_f64() * 1e3);
    let why = match demand.rounds {
        _ if bytes > MOST_IN_FLIGHT => {
            format!("{under_way} under way, the most unless asked for, at {trip}")
        }
        1 => format!("{under_way} under way fill 1 Gbit/s at {trip}"),
        rounds => {
            format!("{under_way} under way fill 1 Gbit/s at {trip}, {rounds} of them for a write")
        }
    };
    Choice::new(usize::try_from(depth).unwrap_or(LOCAL_QUEUE), why)
}

/// The bandwidth-delay product of the assumed link, times the round trips of a command.
fn in_flight(demand: Demand) -> u64 {
    let nanos = demand.round_trip.as_nanos() * u128::from(demand.rounds);
    u64::try_from(nanos * u128::from(LINK) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Round trips that a write of `len` bytes takes: one for what is sent unasked, and one more for
/// each round of R2Ts (RFC 7143 §11.8).
fn rounds_of_a_write(terms: &Negotiated, len: u64) -> u64 {
    let first_burst = u64::from(terms.first_burst_length);
    let segment = u64::from(terms.target_max_recv_data_segment_length);
    let unasked = match (terms.initial_r2t, terms.immediate_data) {
        (false, _) => first_burst,
        (true, true) => first_burst.min(segment),
        (true, false) => 0,
    };
    let round = u64::from(terms.max_burst_length) * u64::from(terms.max_outstanding_r2t);
    1 + len.saturating_sub(unasked).div_ceil(round.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(millis: u64, rounds: u64, io_size: u64) -> usize {
        let demand = Demand { round_trip: Duration::from_millis(millis), rounds };
        choose_queue_depth(io_size, [None, Some(demand)]).value
    }

    #[test]
    fn the_queue_grows_with_the_round_trip_within_bounds() {
        assert_eq!(depth(0, 1, 1 << 20), 8);
        assert_eq!(depth(100, 1, 1 << 20), 12);
        assert_eq!(depth(100, 2, 1 << 20), 24);
        assert_eq!(depth(1000, 2, 1 << 20), 32);
        assert_eq!(depth(1000, 1, 64 << 20), 2);
        assert_eq!(depth(1000, 1, 512), 256);
        assert_eq!(choose_queue_depth(1 << 20, [None, None]).value, LOCAL_QUEUE);
    }

    #[test]
    fn the_more_demanding_end_decides() {
        let near = Demand { round_trip: Duration::from_millis(1), rounds: 1 };
        let far = Demand { round_trip: Duration::from_millis(200), rounds: 1 };
        let choice = choose_queue_depth(1 << 20, [Some(far), Some(near)]);
        assert_eq!(choice.value, 24);
        assert!(choice.reason.contains("200.000 ms"), "{}", choice.reason);
    }

    #[test]
    fn a_write_takes_a_round_for_its_r2ts() {
        let mut terms = Negotiated::default();
        terms.first_burst_length = 65_536;
        terms.max_burst_length = 262_144;
        terms.max_outstanding_r2t = 1;
        terms.target_max_recv_data_segment_length = 8192;
        terms.initial_r2t = false;
        assert_eq!(rounds_of_a_write(&terms, 65_536), 1);
        assert_eq!(rounds_of_a_write(&terms, 65_537), 2);
        assert_eq!(rounds_of_a_write(&terms, 1 << 20), 5);
        terms.initial_r2t = true;
        assert_eq!((rounds_of_a_write(&terms, 8192), rounds_of_a_write(&terms, 65_536)), (1, 2));
        terms.immediate_data = false;
        assert_eq!(rounds_of_a_write(&terms, 1), 2);
    }

    #[test]
    fn chunks_are_whole_blocks() {
        assert_eq!(choose_io_size(1000, Some(4096)).value, 4096);
        assert_eq!(choose_io_size(65_536, Some(512)).value, 65_536);
        assert_eq!(choose_io_size(1000, None).value, 1000);
    }
}
