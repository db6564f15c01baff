//! UNH item 16: SCSI commands, their fields and their results.

use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_session::{Command, TaskError};
use iscsi_testkit::pdus::scsi_response;
use iscsi_testkit::scsi::Sense;
use iscsi_testkit::{expect, send};

use super::{data_out, payload};
use crate::pair::{config, pattern, read, write};
use crate::trace::Trace;

/// Checks the first command after a login, with or without immediate data.
fn first_command(immediate_data: &str) {
    let mut trace = Trace::new(config());
    let login = trace.login(&[("ImmediateData", immediate_data), ("InitialR2T", "Yes")]);
    let agreed = trace.script.numbers();
    let tags = [write(0, pattern(512, 1)), read(0, 1)].map(|command| trace.submit(command));
    let len = if immediate_data == "Yes" { 512 } else { 0 };
    let first = expect!(
        trace,
        ScsiCommand {
            cmd_sn: login.cmd_sn(),
            exp_stat_sn: agreed.stat_sn,
            is_final: true,
            itt: tags[0].get(),
            edtl: 512,
        }
    );
    assert_eq!((first.data.len(), first.ahs.len()), (len, 0));
    let second = expect!(trace, ScsiCommand { itt: tags[1].get(), reads: true, edtl: 512 });
    assert!(second.data.is_empty() && second.itt() != first.itt());
}

/// UNH FFP 16.1.1: checks the command fields with immediate data.
#[test]
fn ffp_16_1_1_fields_with_immediate_data() {
    first_command("Yes");
}

/// UNH FFP 16.1.2: checks the command fields without immediate data.
#[test]
fn ffp_16_1_2_fields_without_immediate_data() {
    first_command("No");
}

/// UNH FFP 16.1.1: only a CDB of more than 16 bytes has an additional header.
#[test]
fn ffp_16_1_1_additional_header_for_long_cdbs_only() {
    for (len, ahs) in [(6, 0), (16, 0), (17, 8), (32, 20), (260, 248)] {
        let mut trace = Trace::logged_in();
        let cdb: Vec<u8> = (0..len).map(|byte| byte as u8 | 0x40).collect();
        trace.submit(Command::new(Lun::ZERO, Cdb::new(&cdb).unwrap()));
        let command = expect!(trace, ScsiCommand);
        assert_eq!(command.ahs.len(), ahs);
        assert_eq!(command.cdb()[..len.min(16)], cdb[..len.min(16)]);
    }
}

/// UNH FFP 16.2.1, 16.6, WR-02: if all data fits into the command, F is set and no Data-Out follows.
#[test]
fn ffp_16_2_1_all_data_is_immediate() {
    for initial_r2t in ["Yes", "No"] {
        let mut trace = Trace::with_answers(&[("InitialR2T", initial_r2t)]);
        let data = pattern(8192, 1);
        trace.submit(write(0, data.clone()));
        let command = expect!(trace, ScsiCommand { is_final: true, edtl: 8192 });
        assert_eq!(command.data, data);
        trace.silence();
    }
}

/// UNH FFP 16.2.4: immediate and unsolicited data together form the first burst.
#[test]
fn ffp_16_2_4_immediate_and_unsolicited_data() {
    let mut trace = Trace::with_answers(&[("FirstBurstLength", "16384")]);
    let data = pattern(65_536, 1);
    trace.submit(write(0, data.clone()));
    let command = expect!(trace, ScsiCommand { is_final: false });
    let parts = data_out(&mut trace, 1);
    assert!(parts[0].is_final());
    assert_eq!([command.data.to_vec(), payload(&parts)].concat(), data[..16_384]);
}

/// UNH FFP 16.4.1, 16.4.3, 16.4.4: the sense of an aborted command is passed to the caller; the session never
/// sends the command again by itself.
#[test]
fn ffp_16_4_1_iscsi_conditions_go_up() {
    for sense in [Sense::CRC_ERROR, Sense::UNEXPECTED_DATA, Sense::TOO_LITTLE_DATA] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(write(0, pattern(512, 1)));
        expect!(trace, ScsiCommand);
        trace.send(scsi_response().itt(itt.get()).sense(sense));
        let done = trace.result(itt).unwrap();
        assert_eq!((done.status, &done.sense[..]), (Status::CHECK_CONDITION, &sense.fixed()[..]));
        trace.silence();
    }
}

/// UNH FFP 16.4.2: a command with missing data is an error.
#[test]
fn ffp_16_4_2_missing_data_is_no_success() {
    let mut trace = Trace::logged_in();
    let itt = trace.submit(read(0, 2));
    expect!(trace, ScsiCommand);
    send!(trace, data_in { itt: itt.get(), data: vec![1; 512], last: false });
    send!(trace, scsi_response { itt: itt.get(), exp_data_sn: 2 });
    assert!(matches!(trace.result(itt), Err(TaskError::DataMissing { .. })));
    trace.silence();
}

/// UNH FFP 16.4.5, 16.4.6: BUSY, RESERVATION CONFLICT and TASK SET FULL are passed to the caller unchanged.
#[test]
fn ffp_16_4_5_other_statuses_go_up() {
    for status in [Status::BUSY, Status::RESERVATION_CONFLICT, Status::TASK_SET_FULL] {
        let mut trace = Trace::logged_in();
        let itt = trace.submit(write(0, pattern(512, 1)));
        expect!(trace, ScsiCommand);
        send!(trace, scsi_response { itt: itt.get(), status: status.0 });
        assert_eq!(trace.result(itt).unwrap().status, status);
        trace.silence();
    }
}

/// UNH FFP 16.6: if the data does not fit into the command and InitialR2T=Yes, F is still set, and the rest
/// waits for an R2T.
#[test]
fn ffp_16_6_larger_writes_wait_for_an_r2t() {
    let mut trace = Trace::with_answers(&[("InitialR2T", "Yes")]);
    let data = pattern(16_384, 1);
    let itt = trace.submit(write(0, data.clone())).get();
    let command = expect!(trace, ScsiCommand { is_final: true, edtl: 16_384 });
    assert_eq!(command.data, data[..8192]);
    trace.silence();
    send!(trace, r2t { itt: itt, ttt: 1, buffer_offset: 8192, desired_length: 8192 });
    assert_eq!(payload(&data_out(&mut trace, 1)), data[8192..]);
}
