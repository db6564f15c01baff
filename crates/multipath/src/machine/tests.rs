//! Tests of cases that the model of targets lacks: disks that refuse requests, and disks that are detached.

use std::collections::BTreeSet;
use std::time::Duration;

use iscsi_pdu::scsi::Status;

use super::*;
use crate::paths::Credit;
use crate::paths::hedge::HedgePolicy;
use crate::reconnect::BackOff;
use crate::unit::CommandEnd;

const SPEC: RequestSpec = RequestSpec {
    len: 4096,
    writes: true,
    is_plain: true,
    can_shorten: true,
    can_double: true,
    route: Route::Credit,
};

/// Returns the time from which the tests count.
#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn start() -> Instant {
    Instant::now()
}

fn limits() -> RequestLimits {
    RequestLimits {
        total: Credit { bytes: 8 << 20, requests: 64 },
        retry_timeout: Duration::from_secs(60),
        aborted_timeout: Duration::from_secs(5),
        pauses: BackOff::new(Duration::from_millis(10), Duration::from_secs(1)),
        max_attentions: 8,
        hedge: HedgePolicy::default(),
        is_shaped: false,
    }
}

/// Creates a machine with a disk of one path.
fn machine(now: Instant) -> (Machine<&'static str>, DiskId) {
    let mut machine = Machine::new();
    let disk = machine.attach(limits());
    open(&mut machine, disk, now);
    (machine, disk)
}

fn open(machine: &mut Machine<&'static str>, disk: DiskId, now: Instant) -> Option<PathId> {
    let credit = Credit { bytes: 8 << 20, requests: 64 };
    let asked_at = machine.unit().identity.shared_reasons();
    machine.path_opened(disk, PathFacts { credit, asked_at, reported: None }, now)
}

fn outputs(machine: &mut Machine<&'static str>) -> Vec<Output<&'static str>> {
    std::iter::from_fn(|| machine.poll_output()).collect()
}

fn sent(outputs: &[Output<&'static str>]) -> Vec<AttemptId> {
    let attempt =
        |it: &_| if let Output::Send { attempt, .. } = it { Some(*attempt) } else { None };
    outputs.iter().filter_map(attempt).collect()
}

#[test]
fn a_disk_that_refuses_ends_what_waits_for_its_range_and_no_more() {
    let now = start();
    let (mut machine, disk) = machine(now);
    let write = |machine: &mut Machine<_>| {
        machine.submit(disk, Request::Write(0..4096, SPEC), now).unwrap()
    };
    let [first, second] = [(); 2].map(|()| write(&mut machine));
    let [attempt] = sent(&outputs(&mut machine))[..] else { panic!("one of them is sent") };
    machine.refuse(disk, &"gone", now);
    let third = write(&mut machine);
    let refused = Err(Failure::Request(requests::Failure::Refused("gone")));
    let ends =
        [second, third].map(|request| Output::Completed { request, result: refused.clone() });
    assert_eq!(outputs(&mut machine), ends);
    assert_eq!(machine.poll_timeout(), None, "nothing waits");
    machine.completed(attempt, CommandEnd::Status(Status::GOOD, &[]), || "an end", now);
    let result = Ok(Done::By(attempt));
    assert_eq!(outputs(&mut machine), [Output::Completed { request: first, result }]);
    open(&mut machine, disk, now);
    write(&mut machine);
    assert_eq!(sent(&outputs(&mut machine)).len(), 1, "the range is free");
}

#[test]
fn a_disk_leaves_with_the_last_of_its_attempts() {
    let now = start();
    let (mut machine, disk) = machine(now);
    let read = Request::Read(RequestSpec { writes: false, ..SPEC });
    machine.submit(disk, read.clone(), now).unwrap();
    let [attempt] = sent(&outputs(&mut machine))[..] else { panic!("it is sent") };
    machine.detach(disk, &"gone", now);
    assert_eq!(outputs(&mut machine), []);
    assert!(machine.submit(disk, read.clone(), now).is_some(), "it is refused, as others are");
    assert_eq!(outputs(&mut machine).len(), 1);
    machine.completed(attempt, CommandEnd::Status(Status::GOOD, &[]), || "an end", now);
    let last = outputs(&mut machine);
    assert!(matches!(last[..], [Output::Completed { .. }, Output::LogOut(_)]), "{last:?}");
    assert_eq!(machine.submit(disk, read, now), None);
    assert!(machine.is_idle() && outputs(&mut machine).is_empty());
}

/// Disks of one machine share its `Durability`, so a disk that wrote nothing reports the loss of another
/// disk. This is why `iscsi-initiator` keeps a separate `Durability` for each disk.
#[test]
fn with_one_durability_for_all_a_disk_that_wrote_nothing_reports_the_loss_of_another() {
    let now = start();
    let (mut machine, writer) = machine(now);
    machine.unit_mut().durability.on_cache();
    let reader = machine.attach(limits());
    open(&mut machine, reader, now);
    let good = |machine: &mut Machine<_>, attempt| {
        machine.completed(attempt, CommandEnd::Status(Status::GOOD, &[]), || "an end", now);
    };
    machine.submit(writer, Request::Write(0..4096, SPEC), now).unwrap();
    let [write] = sent(&outputs(&mut machine))[..] else { panic!("it is sent") };
    good(&mut machine, write);
    outputs(&mut machine);
    let flush = machine.submit(reader, Request::Flush, now).unwrap();
    let reset = [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0];
    // The unit reports the reset once over each path.
    let (mut has_reported, mut result) = (BTreeSet::new(), None);
    while result.is_none() {
        let all = outputs(&mut machine);
        assert_ne!(all, [], "the flush does not end");
        for output in all {
            match output {
                Output::Send { attempt, path, .. } if has_reported.insert(path) => {
                    let check = CommandEnd::Status(Status::CHECK_CONDITION, &reset);
                    machine.completed(attempt, check, || "a reset", now);
                }
                Output::Send { attempt, .. } => good(&mut machine, attempt),
                Output::Completed { request, result: ended } if request == flush => {
                    result = Some(ended);
                }
                Output::Completed { .. } | Output::Event(_) => {}
                other @ (Output::Abort(_)
                | Output::Withdraw(_)
                | Output::LogOut(_)
                | Output::Charge { .. }
                | Output::Reserve { .. }
                | Output::Unreserve(_)) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(result, Some(Ok(Done::LostWrites)));
}
