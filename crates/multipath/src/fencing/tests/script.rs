//! Runs a procedure against a script of results.

use iscsi_pdu::scsi::Status;
use iscsi_pdu::scsi::reservation::{PersistentReserveIn, PersistentReserveOut, ReservationKey};

use super::super::{Failure, Fencing, Goal, ReserveCommand, Step};
use super::model::{Answer, full_status, nexus, now};
use crate::PathId;

pub(super) const A: u64 = 0xa;
pub(super) const B: u64 = 0xb;
pub(super) const KEY: ReservationKey = ReservationKey(A);

/// The expected commands with their results, in order.
pub(super) type Script = Vec<(&'static str, Answer)>;

/// Returns the name of a command in the scripts.
pub(super) fn name_of(command: ReserveCommand) -> &'static str {
    match command {
        ReserveCommand::In { action: PersistentReserveIn::ReadKeys, allocation_length: 1024 } => {
            "keys"
        }
        ReserveCommand::In { action: PersistentReserveIn::ReadFullStatus, allocation_length } => {
            if allocation_length == 8192 {
                "status"
            } else {
                "longer status"
            }
        }
        ReserveCommand::In { action: PersistentReserveIn::ReadReservation, .. } => "reservation",
        ReserveCommand::In { action: PersistentReserveIn::ReadKeys, .. } => "longer keys",
        ReserveCommand::In { action: PersistentReserveIn::ReportCapabilities, .. } => "?",
        ReserveCommand::Out(PersistentReserveOut::RegisterAndIgnoreExistingKey {
            new_key: KEY,
            persist_through_power_loss,
            ..
        }) => {
            if persist_through_power_loss {
                "register for good"
            } else {
                "register"
            }
        }
        ReserveCommand::Out(PersistentReserveOut::Register { key, new_key, .. }) => {
            match (key, new_key) {
                (ReservationKey::NONE, KEY) => "register as in SPC-2",
                (KEY, KEY) => "prove",
                (KEY, ReservationKey::NONE) => "end",
                _ => "?",
            }
        }
        ReserveCommand::Out(_) => "?",
    }
}

/// Runs a procedure; the results of its commands are taken from the script.
pub(super) fn run(
    fencing: &mut Fencing,
    path: u32,
    goal: Goal,
    script: &Script,
) -> Result<(), Failure> {
    let procedure = fencing.start(PathId(path), goal);
    let mut script = script.iter();
    loop {
        match fencing.poll(procedure, now()) {
            Step::Ask(question) => {
                let (expected, answer) = script.next().expect("one question too many");
                assert_eq!(name_of(question.command), *expected);
                assert_eq!(fencing.poll(procedure, now()), Step::Wait, "asked once");
                fencing.on_end(procedure, answer.end());
            }
            Step::Done(result) => {
                assert_eq!(script.next().map(|it| it.0), None, "not asked");
                assert_eq!(fencing.poll(procedure, now()), Step::Done(Err(Failure::GivenUp)));
                return result;
            }
            Step::Wait => panic!("nothing else runs"),
        }
    }
}

/// Creates a disk with path 1, which is not registered yet.
pub(super) fn new() -> Fencing {
    let mut fencing = Fencing::new(KEY);
    fencing.attach(PathId(1), nexus(1));
    fencing
}

/// Creates a disk whose path 1 is registered. Path 2 is a further path, and path 3 is path 1 after a
/// reconnect.
pub(super) fn registered() -> Fencing {
    let mut fencing = new();
    let script = vec![("register for good", Answer::changed())];
    assert_eq!(run(&mut fencing, 1, Goal::Register, &script), Ok(()));
    fencing.attach(PathId(2), nexus(2));
    fencing.attach(PathId(3), nexus(1));
    fencing
}

/// Returns the results other than GOOD after which no READ FULL STATUS follows.
pub(super) fn failures() -> [Answer; 4] {
    let busy = Answer::Status(Status::BUSY);
    [Answer::conflict(), Answer::illegal_request(), busy, Answer::Silence]
}

pub(super) const fn question(number: u32) -> Result<(), Failure> {
    Err(Failure::Question(number))
}

pub(super) fn all_nexuses(count: u16) -> Answer {
    let all: Vec<_> = (1..=count).map(|isid| (A, nexus(isid))).collect();
    full_status(1, &all)
}

/// Returns truncated data of READ FULL STATUS.
pub(super) fn cut_status() -> Answer {
    let Answer::Good(mut data) = all_nexuses(3) else { unreachable!() };
    data.truncate(60);
    Answer::Good(data)
}
