//! UNH items 1 to 5: command numbering, immediate delivery, the window, retries, StatSN.

use iscsi_pdu::CmdSn;
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{Command, ProtocolError, SessionError, TaskError};
use iscsi_testkit::{expect, send};

use crate::pair::{config, pattern, read, write};
use crate::trace::Trace;

/// UNH FFP 1.1: CmdSN increases by one for each command, from the login on.
#[test]
fn ffp_1_1_command_numbering() {
    let mut config = config();
    config.first_cmd_sn = CmdSn::new(0x1234);
    let mut trace = Trace::new(config);
    let login = trace.login(&[]);
    let commands = [
        Command::new(Lun::ZERO, Cdb::inquiry(36)).with_read(bytes::BytesMut::zeroed(36)),
        Command::new(Lun::ZERO, Cdb::test_unit_ready()),
        Command::new(Lun::ZERO, Cdb::read_capacity_10()).with_read(bytes::BytesMut::zeroed(8)),
        read(0, 1),
        write(0, pattern(512, 1)),
    ];
    for (count, command) in (0..).zip(commands) {
        let itt = trace.submit(command);
        expect!(trace, ScsiCommand { immediate: false, cmd_sn: login.cmd_sn() + count });
        send!(trace, scsi_response { itt: itt.get(), status: 8 });
        assert!(trace.result(itt).is_ok());
    }
}

/// UNH FFP 2.1: an immediate request carries the current CmdSN, which the next command also carries.
#[test]
fn ffp_2_1_immediate_delivery() {
    let mut trace = Trace::logged_in();
    trace.assert_usable();
    let mut command = read(0, 1);
    command.immediate = true;
    trace.submit(command);
    let immediate = expect!(trace, ScsiCommand { immediate: true });
    trace.submit(read(1, 1));
    expect!(trace, ScsiCommand { immediate: false, cmd_sn: immediate.cmd_sn() });
}

/// UNH FFP 2.2, 19.1: an immediate task management request carries the current CmdSN, which the next command
/// also carries.
#[test]
fn ffp_2_2_immediate_task_management() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 1));
    let command = expect!(trace, ScsiCommand);
    trace.session.abort(itt, trace.now);
    let cmd_sn = command.cmd_sn() + 1;
    expect!(trace, TaskManagementRequest { immediate: true, cmd_sn: cmd_sn });
    trace.submit(read(1, 1));
    expect!(trace, ScsiCommand { immediate: false, cmd_sn: cmd_sn });
}

/// UNH FFP 3.1, 16.5: while the window is closed, no command is sent until a NOP-In opens it.
#[test]
fn ffp_3_1_closed_window() {
    let mut trace = Trace::with_closed_window();
    let tags = [0, 1, 2, 3, 4].map(|lba| trace.submit(read(lba, 1)));
    trace.silence();
    trace.advance(std::time::Duration::from_secs(2));
    trace.silence();
    trace.script.set_window(4);
    send!(trace, nop_in {});
    for itt in &tags[..4] {
        expect!(trace, ScsiCommand { itt: itt.get() });
    }
    trace.silence();
}

/// UNH FFP 3.2: with a large window, as many commands as fit are outstanding.
#[test]
fn ffp_3_2_large_window() {
    let mut trace = Trace::with_window(100);
    for lba in 0..150 {
        trace.submit(read(lba, 1));
    }
    (0..100).for_each(|_| drop(expect!(trace, ScsiCommand)));
    trace.silence();
}

/// UNH FFP 3.3: with a window of one command, the next command follows the response.
#[test]
fn ffp_3_3_single_command() {
    let mut trace = Trace::with_window(1);
    let tags = [0, 1, 2].map(|lba| trace.submit(read(lba, 1)));
    for itt in tags {
        expect!(trace, ScsiCommand { itt: itt.get() });
        trace.silence();
        send!(trace, data_in { itt: itt.get(), data: vec![1; 512], status: 0 });
        assert!(trace.result(itt).is_ok());
    }
}

/// UNH FFP 4.1: without error recovery no command is sent twice; the ABORT TASK fills the gap in CmdSN.
#[test]
fn ffp_4_1_command_is_not_retried() {
    let mut trace = Trace::without_pings();
    let itt = trace.submit(read(0, 1));
    let command = expect!(trace, ScsiCommand);
    trace.advance(std::time::Duration::from_secs(61));
    let lost = command.cmd_sn();
    let abort = expect!(trace, TaskManagementRequest { ref_cmd_sn: lost });
    trace.silence();
    send!(trace, task_management_response { itt: abort.itt() });
    assert_eq!(trace.result(itt).unwrap_err(), TaskError::TimedOut);
    trace.assert_usable();
}

/// UNH FFP 5.1: a jump in StatSN ends the session, and the response with it does not complete the command.
#[test]
fn ffp_5_1_stat_sn_jump() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(Command::new(Lun::ZERO, Cdb::test_unit_ready()));
    expect!(trace, ScsiCommand);
    let jumped = trace.script.numbers().stat_sn.wrapping_add(1 << 31);
    send!(trace, scsi_response { itt: itt.get(), stat_sn: jumped });
    let error = SessionError::Protocol(ProtocolError::StatSn {
        expected: iscsi_pdu::StatSn::new(jumped.wrapping_sub(1 << 31)),
        found: iscsi_pdu::StatSn::new(jumped),
    });
    assert_eq!(*trace.failure(), error);
    assert!(matches!(trace.result(itt), Err(TaskError::Session { sent: true, .. })));
}
