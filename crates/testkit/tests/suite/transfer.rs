//! Tests of reads and writes with all negotiated modes and sizes.

use crate::rig::{Rig, config, pattern};
use iscsi_testkit::config::{DataInBehavior, R2tOrder};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

fn ranges(pdus: &[Pdu]) -> Vec<(u32, u32)> {
    pdus.iter().map(|pdu| (pdu.buffer_offset(), pdu.desired_length())).collect()
}

#[test]
fn a_read_ends_with_status_in_its_last_pdu() {
    let mut rig = Rig::login(config(), &[("MaxRecvDataSegmentLength", "1024")]);
    let disk = rig.target.disk(0).unwrap();
    disk.fill(1);
    let read = rig.read(3, 5);
    rig.put(read);
    let pdus = rig.drain();
    assert_eq!(pdus.iter().map(|pdu| pdu.data.len()).collect::<Vec<_>>(), [1024, 1024, 512]);
    assert_eq!(pdus.iter().map(Pdu::data_sn).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(pdus.iter().map(Pdu::is_final).collect::<Vec<_>>(), [false, false, true]);
    assert!(pdus[2].has_status());
    let got: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.data.to_vec()).collect();
    assert!(disk.holds(3 * 512, &got));
    rig.assert_no_violations();
}

#[test]
fn read_shapes_all_bring_the_same_bytes() {
    let shapes: [fn(&mut DataInBehavior); 4] = [
        |shape| shape.separate_status = true,
        |shape| (shape.empty_first, shape.pad, shape.pdu) = (true, 0xff, Some(509)),
        |shape| (shape.shuffle_pdus, shape.sequence, shape.pdu) = (true, Some(1024), Some(300)),
        |shape| (shape.shuffle_sequences, shape.sequence, shape.junk) = (true, Some(700), true),
    ];
    for shape in shapes {
        let mut config = config();
        shape(&mut config.data_in);
        config.keys.data_pdu_in_order = false;
        config.keys.data_sequence_in_order = false;
        let keys = [("DataPDUInOrder", "No"), ("DataSequenceInOrder", "No")];
        let mut rig = Rig::login(config, &keys);
        let disk = rig.target.disk(0).unwrap();
        disk.fill(2);
        let read = rig.read(0, 9);
        rig.put(read);
        let mut got = vec![0; 9 * 512];
        for pdu in rig.drain().iter().filter(|pdu| pdu.is(Opcode::DataIn)) {
            let at = pdu.buffer_offset() as usize;
            got[at..at + pdu.data.len()].copy_from_slice(&pdu.data);
        }
        assert!(disk.holds(0, &got));
        assert_eq!(rig.target.active_tasks(), 0);
        rig.assert_no_violations();
    }
}

#[test]
fn a_write_asks_for_what_was_not_sent_along() {
    let mut config = config();
    config.keys.max_outstanding_r2t = 2;
    config.r2t.burst = Some(1024);
    let mut rig = Rig::login(config, &[("MaxOutstandingR2T", "4")]);
    let data = pattern(8 * 512);
    let write = rig.write(1, 8, &data[..512]);
    rig.put(write);
    let first = rig.drain();
    assert_eq!(ranges(&first), [(512, 1024), (1536, 1024)]);
    rig.answer(&first[0], &data, 600);
    let third = rig.next();
    assert_eq!((third.buffer_offset(), third.data_sn()), (2560, 2));
    rig.answer(&first[1], &data, 512);
    let fourth = rig.next();
    assert_eq!((fourth.buffer_offset(), fourth.desired_length()), (3584, 512));
    rig.answer(&third, &data, 1024);
    rig.answer(&fourth, &data, 1024);
    let response = rig.next();
    assert_eq!((response.opcode(), response.status()), (Some(Opcode::ScsiResponse), 0));
    assert_eq!(response.exp_data_sn(), 4);
    assert!(rig.target.disk(0).unwrap().holds(512, &data));
    rig.assert_no_violations();
}

#[test]
fn unsolicited_data_fill_the_first_burst() {
    let keys = [("InitialR2T", "No"), ("ImmediateData", "Yes"), ("FirstBurstLength", "2048")];
    let mut rig = Rig::login(config(), &keys);
    let data = pattern(6 * 512);
    let mut write = rig.write(0, 6, &data[..512]);
    write.header[1] &= 0x7f;
    rig.put(write.clone());
    rig.unsolicited(write.itt(), 0, 512, &data[512..1024], false);
    rig.unsolicited(write.itt(), 1, 1024, &data[1024..2048], true);
    let r2t = rig.next();
    assert_eq!((r2t.buffer_offset(), r2t.desired_length()), (2048, 1024));
    rig.answer(&r2t, &data, 4096);
    assert_eq!(rig.next().status(), 0);
    assert!(rig.target.disk(0).unwrap().holds(0, &data));
    rig.assert_no_violations();
}

#[test]
fn ranges_may_fall_and_repeat() {
    let mut config = config();
    config.r2t.burst = Some(512);
    config.r2t.order = R2tOrder::Falling;
    config.r2t.repeat_first = true;
    config.keys.data_sequence_in_order = false;
    let keys = [("MaxOutstandingR2T", "8"), ("DataSequenceInOrder", "No"), ("ImmediateData", "No")];
    let mut rig = Rig::login(config, &keys);
    let data = pattern(3 * 512);
    let write = rig.write(0, 3, &[]);
    rig.put(write);
    let asks = rig.drain();
    assert_eq!(ranges(&asks), [(1024, 512), (512, 512), (0, 512), (1024, 512)]);
    for ask in &asks {
        rig.answer(ask, &data, 512);
    }
    assert_eq!(rig.next().status(), 0);
    rig.assert_no_violations();
}

#[test]
fn gathered_writes_are_served_newest_first() {
    let mut config = config();
    config.r2t.gather_tasks = 2;
    let mut rig = Rig::login(config, &[("ImmediateData", "No")]);
    let (one, two) = (rig.write(0, 1, &[]), rig.write(1, 1, &[]));
    rig.put(one.clone());
    assert!(rig.try_next().is_none());
    rig.put(two.clone());
    let asks = rig.drain();
    assert_eq!(asks.iter().map(Pdu::itt).collect::<Vec<_>>(), [two.itt(), one.itt()]);
}

#[test]
fn residuals_tell_what_did_not_fit() {
    let mut rig = Rig::login(config(), &[]);
    let mut short = rig.read(0, 2);
    short.set_u32(20, 100);
    rig.put(short);
    let over = rig.next();
    assert_eq!((over.data.len(), over.residual()), (100, 924));
    assert!(over.flag(0x04));
    let inquiry = rig.command(0xc0, &[0x12, 0, 0, 0, 255, 0], 255, &[]);
    rig.put(inquiry);
    let under = rig.next();
    assert_eq!((under.data.len(), under.residual()), (74, 181));
    assert!(under.flag(0x02));
    rig.assert_no_violations();
}

#[test]
fn commands_out_of_order_wait_for_their_turn() {
    let mut rig = Rig::login(config(), &[]);
    let (one, two) = (rig.write(0, 1, &pattern(512)), rig.read(0, 1));
    rig.put(two.clone());
    assert!(rig.try_next().is_none());
    rig.put(one.clone());
    let tags: Vec<u32> = rig.drain().iter().map(Pdu::itt).collect();
    assert_eq!(tags, [one.itt(), two.itt()]);
    assert_eq!(rig.target.commands()[0].cmd_sn, one.cmd_sn());
}

#[test]
fn the_window_follows_the_tasks() {
    let mut config = config();
    config.window = 2;
    let mut rig = Rig::login(config, &[]);
    rig.target.hold();
    let (one, two, three) = (rig.read(0, 1), rig.read(0, 1), rig.read(0, 1));
    for read in [&one, &two, &three] {
        rig.put(read.clone());
    }
    assert_eq!(rig.target.commands().len(), 2, "the third is outside the window");
    rig.target.release();
    let last = rig.drain().pop().unwrap();
    assert_eq!((last.exp_cmd_sn(), last.max_cmd_sn()), (three.cmd_sn(), three.cmd_sn() + 1));
    assert_eq!(rig.target.violations().len(), 1);
}

#[test]
fn reads_may_alternate() {
    let mut config = config();
    config.data_in.interleave = true;
    config.data_in.pdu = Some(512);
    let mut rig = Rig::login(config, &[]);
    for lba in 0..2 {
        let read = rig.read(lba, 2);
        rig.put(read);
    }
    let tags: Vec<u32> = rig.drain().iter().map(Pdu::itt).collect();
    assert_eq!(tags, [1, 2, 1, 2]);
}

#[test]
fn a_closed_window_takes_nothing_until_it_opens() {
    let mut config = config();
    config.window = 0;
    let mut rig = Rig::login(config, &[]);
    let read = rig.read(0, 1);
    rig.put(read.clone());
    assert!(rig.try_next().is_none());
    assert_eq!(rig.target.violations()[0].rule, "SEQ-06");
    rig.target.set_window(1);
    rig.target.show_window(rig.id);
    let shown = rig.next();
    assert_eq!((shown.exp_cmd_sn(), shown.max_cmd_sn()), (read.cmd_sn(), read.cmd_sn()));
    rig.put(read);
    assert!(rig.next().has_status());
}

#[test]
fn a_failed_write_still_takes_its_unsolicited_data() {
    let mut rig = Rig::login(config(), &[("InitialR2T", "No"), ("FirstBurstLength", "1024")]);
    rig.target.disk(0).unwrap().set_read_only(true);
    let mut write = rig.write(0, 4, &[]);
    write.header[1] &= 0x7f;
    rig.put(write.clone());
    assert!(rig.try_next().is_none(), "the burst is not over");
    rig.unsolicited(write.itt(), 0, 0, &pattern(1024), true);
    assert_eq!(rig.next().status(), 2);
    assert!(rig.target.disk(0).unwrap().holds(0, &[0; 1024]));
    rig.assert_no_violations();
}

#[test]
fn too_little_data_fail_the_write() {
    let mut rig = Rig::login(config(), &[("ImmediateData", "No")]);
    let write = rig.write(0, 2, &[]);
    rig.put(write);
    let mut r2t = rig.next();
    r2t.set_u32(44, 512);
    rig.answer(&r2t, &pattern(512), 512);
    let response = rig.next();
    assert_eq!((response.status(), response.data[14], response.data[15]), (2, 0x0c, 0x0d));
}

/// SEQ-23: a Data-Out out of order fails the write, and its bytes are discarded (RFC 7143 §7.9).
#[test]
fn seq_23_a_wrong_data_sn_fails_the_write() {
    const FAILED: (u8, u8, u8) = (2, 0x47, 0x05);
    let keys = [("InitialR2T", "No"), ("ImmediateData", "No"), ("FirstBurstLength", "1024")];
    for (first, second) in [(0, 0), (1, 0), (27, 1), (u32::MAX, 1)] {
        let mut rig = Rig::login(config(), &keys);
        let disk = rig.target.disk(0).unwrap();
        let mut write = rig.write(0, 2, &[]);
        write.header[1] &= 0x7f;
        rig.put(write.clone());
        rig.unsolicited(write.itt(), first, 0, &pattern(512), false);
        rig.unsolicited(write.itt(), second, 512, &pattern(512), true);
        let response = rig.next();
        assert_eq!((response.status(), response.data[14], response.data[15]), FAILED);
        assert!(disk.holds(512, &[0; 512]), "DataSN {first}, {second}");
    }
    let mut rig = Rig::login(config(), &[("ImmediateData", "No")]);
    let write = rig.write(0, 2, &[]);
    rig.put(write.clone());
    let r2t = rig.next();
    let mut data = Pdu::new(Opcode::DataOut);
    data.set_u32(16, write.itt());
    data.set_u32(20, r2t.ttt());
    data.set_u32(36, 1);
    data.data = pattern(1024).into();
    rig.put(data);
    let response = rig.next();
    assert_eq!((response.status(), response.data[14], response.data[15]), FAILED);
    assert!(rig.target.disk(0).unwrap().holds(0, &[0; 1024]));
}

/// Unsolicited data that exceed the length of the command are dropped, and the residual reports them.
#[test]
fn unsolicited_data_beyond_the_command_are_dropped() {
    let keys = [("InitialR2T", "No"), ("ImmediateData", "No"), ("FirstBurstLength", "2048")];
    let mut rig = Rig::login(config(), &keys);
    let mut write = rig.write(0, 1, &[]);
    write.header[1] &= 0x7f;
    write.set_u32(20, 1536);
    rig.put(write.clone());
    for (number, step) in (0..3).zip(pattern(1536).chunks(512)) {
        rig.unsolicited(write.itt(), number, number * 512, step, number == 2);
    }
    let response = rig.next();
    assert_eq!((response.status(), response.residual()), (0, 1024));
    assert!(response.flag(0x02));
    assert!(rig.target.disk(0).unwrap().holds(0, &pattern(512)));
    assert!(rig.target.disk(0).unwrap().holds(512, &[0; 512]));
}
