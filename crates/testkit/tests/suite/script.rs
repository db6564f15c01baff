//! Tests of traces: the script defines what the target does, and the test checks what the initiator must do.

use crate::rig::{NAMES, pattern};
use bytes::BytesMut;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, Pdu};
use iscsi_testkit::script::Script;
use iscsi_testkit::text::Pairs;
use iscsi_testkit::{expect, send};

fn bytes(pdu: &Pdu) -> BytesMut {
    let mut bytes = BytesMut::new();
    Framing::PLAIN.put(pdu, &mut bytes);
    bytes
}

fn login() -> Pdu {
    let mut pdu = Pdu::new(Opcode::LoginRequest);
    pdu.header[0] |= 0x40;
    pdu.header[1] = FINAL | 7;
    pdu.set(8, &[0x80, 0, 0, 0, 0, 9]);
    pdu.set_u32(24, u32::MAX);
    pdu.data = NAMES.into_iter().collect::<Pairs>().join().into();
    pdu
}

fn write(cmd_sn: u32, exp_stat_sn: u32) -> Pdu {
    let mut pdu = Pdu::new(Opcode::ScsiCommand);
    pdu.header[1] = 0xa1;
    pdu.set_u32(16, 7);
    pdu.set_u32(20, 1024);
    pdu.set_u32(24, cmd_sn);
    pdu.set_u32(28, exp_stat_sn);
    pdu
}

fn logged_in() -> Script {
    let mut script = Script::new();
    script.set_stat_sn(u32::MAX);
    script.receive(&bytes(&login()));
    script.answer_login(&[]);
    let mut stream = BytesMut::from(&script.transmit()[..]);
    let response = Framing::PLAIN.take(&mut stream, 8192).unwrap().unwrap();
    assert_eq!((response.tsih(), response.stat_sn()), (1, u32::MAX));
    assert_eq!((response.exp_cmd_sn(), response.max_cmd_sn()), (u32::MAX, 62));
    script
}

#[test]
fn a_write_reads_like_a_trace() {
    let mut target = logged_in();
    target.receive(&bytes(&write(u32::MAX, 0)));
    let command = expect!(target, ScsiCommand { edtl: 1024, cmd_sn: u32::MAX });
    let r2t = send!(target, r2t { itt: command.itt(), ttt: 0, desired_length: 1024 });
    assert_eq!((r2t.stat_sn(), r2t.exp_cmd_sn()), (0, 0));
    let mut data = Pdu::new(Opcode::DataOut);
    data.set_u32(16, 7);
    data.data = pattern(1024).into();
    target.receive(&bytes(&data));
    expect!(target, DataOut { ttt: 0, buffer_offset: 0, is_final: true });
    target.silence();
    send!(target, scsi_response { itt: command.itt(), status: 0 });
    assert_eq!(target.numbers().stat_sn, 1);
    target.assert_no_violations();
}

#[test]
fn what_the_test_sets_is_left_alone() {
    let mut target = logged_in();
    let pdu = send!(target, nop_in { stat_sn: 9, exp_cmd_sn: 8, max_cmd_sn: 7, ttt: 6 });
    assert_eq!((pdu.stat_sn(), pdu.exp_cmd_sn(), pdu.max_cmd_sn()), (9, 8, 7));
    assert_eq!(target.numbers().stat_sn, 0, "a ping uses no StatSN");
    send!(target, async_message { event: 1, parameters: [0, 2, 3] });
    assert_eq!(target.numbers().stat_sn, 1);
    target.set_window(0);
    assert_eq!(target.numbers().max_cmd_sn, target.numbers().exp_cmd_sn.wrapping_sub(1));
}

#[test]
#[should_panic(expected = "expected DataOut, got ScsiCommand")]
fn another_pdu_fails_the_trace() {
    let mut target = logged_in();
    target.receive(&bytes(&write(u32::MAX, 0)));
    target.expect(Opcode::DataOut);
}

#[test]
#[should_panic(expected = "cmd_sn of ScsiCommand")]
fn another_field_fails_the_trace() {
    let mut target = logged_in();
    target.receive(&bytes(&write(u32::MAX, 0)));
    expect!(target, ScsiCommand { cmd_sn: 5 });
}

#[test]
fn a_script_sees_several_connections() {
    let mut target = logged_in();
    target.receive(&bytes(&write(5, 0)));
    assert_eq!(target.violations()[0].rule, "SEQ-02");
    target.reconnect();
    target.receive(&bytes(&login()));
    target.answer_login(&[]);
    target.receive(&bytes(&write(u32::MAX, 2)));
    expect!(target, ScsiCommand { itt: 7 });
    assert_eq!(target.violations().len(), 1);
}
