//! Tests that faults occur when they are due, and only then.

use crate::rig::{Rig, config};
use iscsi_testkit::fault::{Effect, Fault, Trigger};
use iscsi_testkit::frame::FrameError;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

/// Returns the PDUs that the target sends in response to two reads.
fn two_reads(fault: Fault) -> (Rig, Vec<Pdu>) {
    let mut config = config();
    config.faults.push(fault);
    let mut rig = Rig::login(config, &[]);
    for lba in 0..2 {
        let read = rig.read(lba, 1);
        rig.put(read);
    }
    let pdus = rig.drain();
    (rig, pdus)
}

#[test]
fn pdus_are_lost_doubled_and_changed() {
    let data_in = |effect| two_reads(Fault::sending(Opcode::DataIn, 1, effect)).1;
    assert_eq!(data_in(Effect::Swallow).len(), 1);
    assert_eq!(data_in(Effect::Duplicate).len(), 3);
    assert_eq!(data_in(Effect::SetByte { at: 3, value: 8 })[1].status(), 8);
    assert_eq!(data_in(Effect::SetData(b"x".as_slice().into()))[1].data, "x");
    let other = Box::new(Pdu::new(Opcode::Reject));
    assert!(data_in(Effect::Before(other))[1].is(Opcode::Reject));
    let first = two_reads(Fault::sending(Opcode::DataIn, 0, Effect::Behind(1))).1;
    assert_eq!(first[0].stat_sn(), first[1].stat_sn() + 1);
    let gap = data_in(Effect::SkipStatSn(2));
    assert_eq!(gap[1].stat_sn(), gap[0].stat_sn() + 3);
    assert_eq!(two_reads(Fault::data_sn_gap(0)).1[0].data_sn(), 1);
}

#[test]
fn requests_are_lost() {
    let (rig, pdus) = two_reads(Fault::receiving(Opcode::ScsiCommand, 0, Effect::Swallow));
    assert!(pdus.is_empty(), "the second read waits for the first");
    assert!(!rig.target.is_closed(rig.id));
}

#[test]
fn a_fault_may_be_meant_for_another_connection() {
    let fault = Fault::sending(Opcode::DataIn, 0, Effect::Close);
    let (rig, pdus) = two_reads(fault.clone().on_connection(1));
    assert_eq!((pdus.len(), rig.target.is_closed(rig.id)), (2, false));
    let (rig, pdus) = two_reads(fault.on_connection(0));
    assert_eq!((pdus.len(), rig.target.is_closed(rig.id)), (0, true));
}

#[test]
fn connections_break_at_any_byte() {
    let (rig, _) = two_reads(Fault::cut_after_received(1 << 20));
    assert!(!rig.target.is_closed(rig.id));
    let mut config = config();
    config.faults.push(Fault::cut_after_sent(100));
    let mut rig = Rig::connect(config);
    let mut sent = 0;
    for _ in 0..4 {
        rig.target.inject(rig.id, Pdu::new(Opcode::NopIn));
        sent += rig.target.transmit(rig.id).len();
    }
    assert_eq!(sent, 100);
    assert!(rig.target.is_closed(rig.id));
}

#[test]
fn a_break_on_receipt_loses_what_goes_beyond() {
    let mut rig = Rig::login(config(), &[]);
    let first = rig.target.config_mut();
    first.faults.push(Fault::new(Trigger::ReceivedBytes(0), Effect::Close));
    let read = rig.read(0, 1);
    rig.put(read);
    assert!(rig.target.is_closed(rig.id));
    assert!(rig.target.commands().is_empty());
}

#[test]
fn digests_go_out_wrong() {
    for (effect, header) in
        [(Effect::CorruptHeaderDigest, true), (Effect::CorruptDataDigest, false)]
    {
        let mut config = config();
        config.faults.push(Fault::sending(Opcode::DataIn, 0, effect));
        let mut rig = Rig::login(config, &[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
        let read = rig.read(0, 1);
        rig.put(read);
        let mut stream = bytes::BytesMut::from(&rig.target.transmit(rig.id)[..]);
        let error = rig.framing.take(&mut stream, 1 << 20).unwrap_err();
        assert_eq!(error == FrameError::HeaderDigest, header, "{error}");
    }
}
