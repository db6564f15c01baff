//! Chooses the numbers of a copy, and explains them.

use iscsi_tuner::Plan;
use serde_json::{Value, json};

use crate::args::{IoSize, QueueDepth};
use crate::end::UnitEnd;
use crate::ends::Ends;

/// Bytes of a read or write of local files: long enough that system calls cost little.
const LOCAL_IO: usize = 1 << 20;
/// Bytes in flight to or from a local file.
const LOCAL_QUEUE: usize = 4 << 20;

/// A number and its reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The number.
    pub value: usize,
    /// The reason for the number.
    pub reason: String,
}

impl Choice {
    fn new(value: usize, reason: impl Into<String>) -> Self {
        Self { value, reason: reason.into() }
    }

    /// Replaces the number by `value`, the total of all sessions.
    fn over(self, sessions: usize, value: usize) -> Self {
        let reason = match (sessions, value == self.value) {
            (0 | 1, true) => return self,
            (0 | 1, false) => format!("{}; no more may be in flight", self.reason),
            (sessions, _) => format!("{sessions} sessions; for each: {}", self.reason),
        };
        Self { value, reason }
    }

    fn to_json(&self) -> Value {
        json!({ "value": self.value, "reason": self.reason })
    }
}

/// The numbers that were chosen for a copy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopyPlan {
    /// Bytes of one read or write.
    pub io_size: Choice,
    /// Concurrent reads or writes of a unit. If `follows` is set, this is the initial number. Without a unit,
    /// it is the number for the files.
    pub queue_depth: Choice,
    /// Whether the queue depth changes when sessions of the units are opened or lost.
    pub follows: bool,
}

impl CopyPlan {
    /// Chooses the numbers from the options, and from the tuner's plans for the units' links. The link that
    /// needs more bytes in flight decides.
    pub(crate) fn new(io_size: IoSize, depth: QueueDepth, ends: &Ends) -> Self {
        let units = || ends.units();
        let block = units().map(UnitEnd::block_size).max();
        let tuned = units().filter_map(UnitEnd::plan).max_by_key(|plan| plan.in_flight);
        let work = if ends.destination.units().is_empty() { Work::Reads } else { Work::Writes };
        let io_size = choose_io_size(io_size, tuned.as_ref(), work, block);
        let mut queue_depth = choose_queue_depth(depth, tuned.as_ref(), work, io_size.value);
        if depth == QueueDepth::Auto
            && let Some((end, depth)) = ends.deepest(io_size.value)
        {
            let sessions = end.units().iter().map(|unit| unit.sessions().len()).sum();
            queue_depth = queue_depth.over(sessions, depth);
        }
        Self { io_size, queue_depth, follows: depth == QueueDepth::Auto }
    }

    /// Returns the plan as JSON, with the source and the destination that it was made for.
    pub(crate) fn to_json(&self, ends: &Ends) -> Value {
        json!({
            "source": ends.source.to_json(),
            "destination": ends.destination.to_json(),
            "io_size_bytes": self.io_size.to_json(),
            "queue_depth": self.queue_depth.to_json(),
        })
    }
}

/// Traffic on the link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    /// Only reads.
    Reads,
    /// Writes, and possibly reads of the same size.
    Writes,
}

fn choose_io_size(
    wanted: IoSize,
    tuned: Option<&Plan>,
    work: Work,
    block: Option<usize>,
) -> Choice {
    let choice = match (wanted, tuned) {
        (IoSize::Fixed(size), _) => Choice::new(size.as_usize(), "as asked for by --io-size"),
        (IoSize::Auto, Some(plan)) => {
            let planned = match work {
                Work::Reads => &plan.read_size,
                Work::Writes => &plan.io_size,
            };
            let size = usize::try_from(planned.value).unwrap_or(LOCAL_IO);
            Choice::new(size, planned.reason.clone())
        }
        (IoSize::Auto, None) => Choice::new(LOCAL_IO, "no link lies between"),
    };
    let whole = block.map_or(choice.value, |block| choice.value.next_multiple_of(block.max(1)));
    if whole == choice.value {
        return choice;
    }
    Choice::new(whole, "rounded up to whole blocks, so that none is written in parts")
}

fn choose_queue_depth(
    wanted: QueueDepth,
    tuned: Option<&Plan>,
    work: Work,
    io_size: usize,
) -> Choice {
    let local = LOCAL_QUEUE / LOCAL_IO;
    match (wanted, tuned) {
        (QueueDepth::Fixed(depth), _) => Choice::new(depth.get(), "as asked for by --queue-depth"),
        (QueueDepth::Auto, Some(plan)) => {
            let choice = match work {
                Work::Reads if plan.read_size.value == io_size as u64 => plan.read_depth.clone(),
                Work::Reads | Work::Writes => plan.queue_depth_for(io_size as u64),
            };
            let depth = usize::try_from(choice.value).unwrap_or(local);
            Choice::new(depth, choice.reason)
        }
        (QueueDepth::Auto, None) => {
            Choice::new(local, "no link lies between: enough to read and write concurrently")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iscsi_initiator::Tuning;
    use iscsi_tuner::{Limits, Measurement, Rtt, plan};

    use super::*;
    use iscsi_tuner::Size;

    fn tuned(millis: u64) -> Plan {
        let mut measurement = Measurement::default();
        measurement.rtt = Some(Rtt::first(Duration::from_millis(millis)));
        plan(&measurement, &Limits::default(), &Tuning::default())
    }

    #[test]
    fn the_tuner_decides_unless_asked_otherwise() {
        let plan = tuned(100);
        let size = choose_io_size(IoSize::Auto, Some(&plan), Work::Writes, Some(512));
        assert_eq!(size.value as u64, plan.io_size.value);
        let depth = choose_queue_depth(QueueDepth::Auto, Some(&plan), Work::Writes, size.value);
        assert_eq!(depth.value, plan.queue_depth.value as usize);
        assert_eq!(depth.reason, plan.queue_depth.reason);
    }

    #[test]
    fn reads_alone_have_numbers_of_their_own() {
        let plan = tuned(100);
        let size = choose_io_size(IoSize::Auto, Some(&plan), Work::Reads, Some(512));
        assert_eq!(size.value as u64, plan.read_size.value);
        let depth = choose_queue_depth(QueueDepth::Auto, Some(&plan), Work::Reads, size.value);
        assert_eq!(depth.value, plan.read_depth.value as usize);
        assert_eq!(depth.reason, plan.read_depth.reason);
    }

    #[test]
    fn smaller_transfers_are_more() {
        let plan = tuned(1);
        let depth = |io_size| {
            choose_queue_depth(QueueDepth::Auto, Some(&plan), Work::Writes, io_size).value
        };
        assert_eq!((depth(1 << 20), depth(64 << 20)), (8, 2));
        assert_eq!(depth(512), 64);
    }

    #[test]
    fn several_sessions_have_one_queue() {
        let one = Choice::new(8, "8 MiB in flight");
        assert_eq!(one.clone().over(1, 8), one);
        assert_eq!(one.clone().over(1, 4).reason, "8 MiB in flight; no more may be in flight");
        let three = Choice::new(24, "3 sessions; for each: 8 MiB in flight");
        assert_eq!(one.over(3, 24), three);
    }

    #[test]
    fn without_a_link_it_is_the_local_queue() {
        let size = choose_io_size(IoSize::Auto, None, Work::Reads, None);
        assert_eq!(size.value, LOCAL_IO);
        let depth = choose_queue_depth(QueueDepth::Auto, None, Work::Reads, size.value);
        assert_eq!(depth.value * size.value, LOCAL_QUEUE);
    }

    #[test]
    fn chunks_are_whole_blocks() {
        let fixed = |bytes| IoSize::Fixed(Size(bytes));
        assert_eq!(choose_io_size(fixed(1000), None, Work::Writes, Some(4096)).value, 4096);
        assert_eq!(choose_io_size(fixed(65_536), None, Work::Writes, Some(512)).value, 65_536);
        assert_eq!(choose_io_size(fixed(1000), None, Work::Writes, None).value, 1000);
    }
}
