//! Tests of commands that the unit has ended without a status, and of the unit attention that reports it
//! (SAM-5 §5.14).

use std::time::Duration;

use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_session::{Command, TaskError};
use iscsi_testkit::pdus::scsi_response;
use iscsi_testkit::scsi::Sense;
use iscsi_testkit::{expect, send};

use crate::pair::{read, write};
use crate::trace::Trace;

/// Unit attentions of a reset, of commands that another initiator has cleared, and of PREEMPT AND ABORT.
const CLEARING: [(u8, u8); 4] = [(0x29, 0x00), (0x29, 0x02), (0x2f, 0x00), (0x2a, 0x05)];

/// Time limit of the response to a task management request.
const GRACE: Duration = Duration::from_secs(10);
/// Time after which PDUs that are sent at the end of a time limit have arrived.
const TICK: Duration = Duration::from_millis(1);

const DOES_NOT_EXIST: u8 = 1;

fn flush() -> Command {
    Command::new(Lun::ZERO, Cdb::synchronize_cache_10(0, 0))
}

fn attention((asc, ascq): (u8, u8)) -> Sense {
    Sense::new(6, asc, ascq)
}

/// TMF-16: a command that another initiator's reset has ended without a status does not wait for its time limit:
/// after the unit attention of a later command it is aborted.
#[test]
fn tmf_16_what_a_unit_may_have_cleared_is_aborted_soon() {
    for code in CLEARING {
        let mut trace = Trace::logged_in();
        let flush = trace.submit(flush());
        let later = trace.submit(read(0, 1));
        (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
        trace.send(scsi_response().itt(later.get()).sense(attention(code)));
        assert_eq!(trace.result(later).unwrap().status, Status::CHECK_CONDITION);
        trace.advance(GRACE - TICK);
        trace.silence();
        trace.advance(TICK);
        let abort = expect!(trace, TaskManagementRequest { referenced_tag: flush.get() });
        send!(trace, task_management_response { itt: abort.itt(), response: DOES_NOT_EXIST });
        assert_eq!(trace.result(flush).unwrap_err(), TaskError::TimedOut, "{code:02x?}");
        trace.assert_usable();
    }
}

/// TMF-16, TMF-06: if the process is stopped before or after the unit attention, the command gets the short
/// time limit again, not its whole time limit.
#[test]
fn tmf_16_what_may_be_cleared_is_aborted_soon_after_a_stop() {
    for is_before in [true, false] {
        let mut trace = Trace::without_pings();
        let flush = trace.submit(flush());
        let later = trace.submit(read(0, 1));
        (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
        let report = scsi_response().itt(later.get()).sense(attention((0x29, 0)));
        if is_before {
            trace.now += Duration::from_secs(3600);
            trace.send(report);
        } else {
            trace.send(report);
            trace.now += Duration::from_secs(3600);
        }
        trace.session.handle_timeout(trace.now);
        trace.silence();
        trace.advance(GRACE - TICK);
        trace.silence();
        trace.advance(TICK);
        expect!(trace, TaskManagementRequest { referenced_tag: flush.get() });
    }
}

/// TMF-16: a status that arrives within the short time limit is delivered: the command was not cleared.
#[test]
fn tmf_16_a_status_that_comes_after_all_counts() {
    let mut trace = Trace::logged_in();
    let flush = trace.submit(flush());
    let later = trace.submit(read(0, 1));
    (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
    trace.send(scsi_response().itt(later.get()).sense(attention((0x29, 0))));
    trace.advance(GRACE - TICK);
    send!(trace, scsi_response { itt: flush.get() });
    assert_eq!(trace.result(flush).unwrap().status, Status::GOOD);
    trace.advance(GRACE);
    trace.silence();
}

/// TMF-16: only commands for the same unit that were sent before the command with the unit attention may be
/// cleared.
#[test]
fn tmf_16_other_units_and_later_commands_are_left_alone() {
    let mut trace = Trace::logged_in();
    let other_unit = Command::new(Lun::new(1).unwrap(), Cdb::synchronize_cache_10(0, 0));
    let other_unit = trace.submit(other_unit);
    let answered = trace.submit(read(0, 1));
    let later = trace.submit(write(0, vec![0; 512]));
    (0..3).for_each(|_| drop(expect!(trace, ScsiCommand)));
    trace.send(scsi_response().itt(answered.get()).sense(attention((0x29, 0))));
    trace.advance(GRACE);
    trace.silence();
    for itt in [other_unit, later] {
        send!(trace, scsi_response { itt: itt.get() });
        assert_eq!(trace.result(itt).unwrap().status, Status::GOOD);
    }
}

/// TMF-16: unit attentions about mode pages or the nexus clear no commands.
#[test]
fn tmf_16_other_attentions_clear_nothing() {
    for code in [(0x29, 0x07), (0x2a, 0x01), (0x2a, 0x09), (0x3f, 0x0e)] {
        let mut trace = Trace::logged_in();
        let flush = trace.submit(flush());
        let later = trace.submit(read(0, 1));
        (0..2).for_each(|_| drop(expect!(trace, ScsiCommand)));
        trace.send(scsi_response().itt(later.get()).sense(attention(code)));
        trace.advance(GRACE);
        trace.silence();
        send!(trace, scsi_response { itt: flush.get() });
        assert_eq!(trace.result(flush).unwrap().status, Status::GOOD, "{code:02x?}");
    }
}
