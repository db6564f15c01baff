//! Tests of requests other than reads and writes: SCSI queries, task management, pings, text, logout.

use crate::rig::{NAMES, Rig, config, pattern};
use iscsi_testkit::config::{Portal, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use iscsi_testkit::scsi::{LunForm, Sense, Unit, status};
use iscsi_testkit::target::Outcome;
use iscsi_testkit::text::Pairs;

/// Returns the data of a command that reads.
fn query(rig: &mut Rig, cdb: &[u8]) -> Vec<u8> {
    let command = rig.command(0xc0, cdb, 255, &[]);
    rig.put(command);
    let data = rig.next();
    assert_eq!((data.opcode(), data.status()), (Some(Opcode::DataIn), 0), "{data:?}");
    data.data.to_vec()
}

/// Returns the sense of a command that fails.
fn sense(rig: &mut Rig, pdu: Pdu) -> (u8, u8, u8) {
    rig.put(pdu);
    let response = rig.next();
    assert_eq!(response.status(), status::CHECK_CONDITION, "{response:?}");
    let sense = &response.data[2..];
    (sense[2], sense[12], sense[13])
}

#[test]
fn the_unit_tells_what_it_is() {
    let mut rig = Rig::login(config(), &[]);
    let inquiry = query(&mut rig, &[0x12, 0, 0, 0, 255, 0]);
    assert_eq!(&inquiry[8..16], b"TESTKIT ");
    assert_eq!(query(&mut rig, &[0x12, 1, 0, 0, 255, 0])[4..], [0, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);
    assert_eq!(&query(&mut rig, &[0x12, 1, 0x80, 0, 255, 0])[4..], b"0001");
    assert_eq!(query(&mut rig, &[0x12, 1, 0x83, 0, 255, 0])[5], 3);
    assert_eq!(query(&mut rig, &[0x25]), [0, 0, 0, 255, 0, 0, 2, 0]);
    let mut capacity = [0; 16];
    capacity[..2].copy_from_slice(&[0x9e, 0x10]);
    capacity[13] = 32;
    let capacity = query(&mut rig, &capacity);
    assert_eq!((capacity[7], capacity[10], capacity[14]), (255, 2, 0xc0));
    assert_eq!(query(&mut rig, &[0x1a, 0, 0x3f, 0, 255, 0])[4], 8);
    rig.target.disk(0).unwrap().set_read_only(true);
    assert_eq!(query(&mut rig, &[0x5a, 0, 0x08, 0, 0, 0, 0, 0, 255, 0])[3], 0x80);
    rig.assert_no_violations();
}

#[test]
fn units_are_listed_and_absent_ones_refused() {
    let mut config = config();
    config.units.insert(300, Unit::new(RamDisk::new(4096, 4)));
    let mut rig = Rig::login(config, &[]);
    let list = query(&mut rig, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    assert_eq!(list[3], 16);
    assert_eq!(list[16..18], [0x41, 0x2c]);
    let mut far = rig.command(0xc0, &[0x25], 255, &[]);
    far.set(8, &LunForm::Flat.encode(300).to_be_bytes());
    rig.put(far);
    assert_eq!(rig.next().data[..], [0, 0, 0, 3, 0, 0, 16, 0]);
    let mut absent = rig.command(0x80, &[0], 0, &[]);
    absent.set(8, &LunForm::Flat.encode(5).to_be_bytes());
    assert_eq!(sense(&mut rig, absent), (5, 0x25, 0));
    let mut inquiry = rig.command(0xc0, &[0x12, 0, 0, 0, 36, 0], 36, &[]);
    inquiry.set(8, &LunForm::Flat.encode(5).to_be_bytes());
    rig.put(inquiry);
    assert_eq!(rig.next().data[0], 0x7f);
}

#[test]
fn errors_have_their_sense() {
    let mut rig = Rig::login(config(), &[]);
    let unknown = rig.command(0x80, &[0xff], 0, &[]);
    assert_eq!(sense(&mut rig, unknown), (5, 0x20, 0));
    let far = rig.read(250, 7);
    assert_eq!(sense(&mut rig, far), (5, 0x21, 0));
    rig.target.disk(0).unwrap().set_read_only(true);
    let write = rig.write(0, 1, &pattern(512));
    assert_eq!(sense(&mut rig, write), (7, 0x27, 0));
    rig.target.end_next_with(Outcome::status(status::BUSY));
    rig.target.end_next_with(Outcome::check(Sense::CRC_ERROR));
    let busy = rig.read(0, 1);
    rig.put(busy);
    assert_eq!(rig.next().status(), status::BUSY);
    let again = rig.read(0, 1);
    assert_eq!(sense(&mut rig, again), (0x0b, 0x47, 5));
    rig.assert_no_violations();
}

#[test]
fn a_unit_attention_is_reported_once() {
    let mut config = config();
    config.units.get_mut(&0).unwrap().unit_attention = true;
    let mut rig = Rig::login(config, &[]);
    query(&mut rig, &[0x12, 0, 0, 0, 255, 0]);
    let ready = rig.command(0x80, &[0], 0, &[]);
    assert_eq!(sense(&mut rig, ready), (6, 0x29, 0));
    let ready = rig.command(0x80, &[0], 0, &[]);
    rig.put(ready);
    assert_eq!(rig.next().status(), 0);
}

#[test]
fn flushes_are_counted_and_blocks_unmapped() {
    let mut rig = Rig::login(config(), &[]);
    let disk = rig.target.disk(0).unwrap();
    disk.fill(3);
    let flush = rig.command(0x80, &[0x35], 0, &[]);
    rig.put(flush);
    assert_eq!((rig.next().status(), disk.flushes()), (0, 1));
    let mut list = vec![0; 24];
    list[1] = 22;
    list[3] = 16;
    list[15] = 4;
    list[19] = 2;
    let unmap = rig.command(0xa0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, &list);
    rig.put(unmap);
    assert_eq!(rig.next().status(), 0);
    assert!(disk.holds(4 * 512, &[0; 1024]));
    assert!(!disk.holds(3 * 512, &[0; 512]));
    let mut lookup = [0; 16];
    lookup[..2].copy_from_slice(&[0x9e, 0x12]);
    lookup[9] = 4;
    lookup[13] = 24;
    let extent = query(&mut rig, &lookup);
    assert_eq!((extent[19], extent[20]), (2, 1));
    let same = rig.command(0xa0, &[0x41, 0, 0, 0, 0, 8, 0, 0, 3, 0], 512, &pattern(512));
    rig.put(same);
    assert_eq!(rig.next().status(), 0);
    assert!(disk.holds(8 * 512, &pattern(512).repeat(3)));
    rig.assert_no_violations();
}

/// SBC-3 §4.22, §6.4.1, §6.5.4: the unit refuses flags for features that it does not announce.
#[test]
fn unserved_flags_are_refused() {
    let mut thick = config();
    thick.units.get_mut(&0).unwrap().thin = false;
    let (protect, dpo, fua, anchor, unmap) = (0x20, 0x10, 0x08, 0x10, 0x08);
    let refused: [(TargetConfig, u8, Vec<u8>); 4] = [
        (config(), 0x28, vec![protect, 7 * protect, dpo, fua]),
        (config(), 0x2a, vec![protect, 7 * protect, dpo, fua]),
        (config(), 0x41, vec![protect, anchor, anchor | unmap]),
        (thick, 0x41, vec![unmap]),
    ];
    for (config, operation, flags) in refused {
        let mut rig = Rig::login(config, &[]);
        for flags in flags {
            let direction = if operation == 0x28 { 0xc0 } else { 0xa0 };
            let data = if operation == 0x28 { vec![] } else { pattern(512) };
            let cdb = [operation, flags, 0, 0, 0, 0, 0, 0, 1, 0];
            let command = rig.command(direction, &cdb, 512, &data);
            assert_eq!(sense(&mut rig, command), (5, 0x24, 0), "{operation:#x} {flags:#x}");
        }
        assert!(rig.target.disk(0).unwrap().holds(0, &[0; 512]));
        rig.assert_no_violations();
    }
    let mut rig = Rig::login(config(), &[]);
    let unmap = rig.command(0xa0, &[0x42, 1, 0, 0, 0, 0, 0, 0, 8, 0], 8, &[0; 8]);
    assert_eq!(sense(&mut rig, unmap), (5, 0x24, 0));
}

/// SBC-3 §5.43: a read after WRITE SAME returns the block that was written, with and without UNMAP.
#[test]
fn write_same_with_unmap_deallocates_zeroes_only() {
    let mut rig = Rig::login(config(), &[]);
    let disk = rig.target.disk(0).unwrap();
    for (block, status) in [(pattern(512), 0), (vec![0; 512], 1)] {
        let cdb = [0x41, 0x08, 0, 0, 0, 4, 0, 0, 2, 0];
        let same = rig.command(0xa0, &cdb, 512, &block);
        rig.put(same);
        assert_eq!(rig.next().status(), 0);
        assert!(disk.holds(4 * 512, &block.repeat(2)));
        let mut lookup = [0; 16];
        lookup[..2].copy_from_slice(&[0x9e, 0x12]);
        lookup[9] = 4;
        lookup[13] = 24;
        assert_eq!(query(&mut rig, &lookup)[20], status);
    }
}

/// SPC-4 §6.11, §7.5.7: MODE SENSE returns the control page, alone and with all pages, and no value can be
/// changed.
#[test]
fn mode_pages_say_what_holds_and_what_may_change() {
    let mut rig = Rig::login(config(), &[]);
    let current = query(&mut rig, &[0x1a, 0, 0x0a, 0, 255, 0]);
    assert_eq!((current[0], &current[4..6]), (15, &[0x0a, 10][..]));
    assert_eq!(current[6] & 0x04, 0, "sense data come in fixed format");
    let all = query(&mut rig, &[0x1a, 0, 0x3f, 0, 255, 0]);
    assert_eq!((all[4], all[24], all.len()), (0x08, 0x0a, 36));
    let changeable = query(&mut rig, &[0x1a, 0, 0x7f, 0, 255, 0]);
    assert_eq!((&changeable[4..6], &changeable[24..26]), (&[0x08, 18][..], &[0x0a, 10][..]));
    assert!(changeable[6..24].iter().chain(&changeable[26..]).all(|byte| *byte == 0));
    let saved = rig.command(0xc0, &[0x1a, 0, 0xca, 0, 255, 0], 255, &[]);
    assert_eq!(sense(&mut rig, saved), (5, 0x39, 0));
    rig.assert_no_violations();
}

/// SPC-4 §6.6.2: a unit that reports the block limits of SBC-3 also reports the version descriptor of SBC-3.
#[test]
fn inquiry_claims_the_standards() {
    let mut rig = Rig::login(config(), &[]);
    let inquiry = query(&mut rig, &[0x12, 0, 0, 0, 255, 0]);
    assert_eq!((inquiry.len(), usize::from(inquiry[4])), (74, 69));
    assert!(inquiry[58..].chunks(2).any(|standard| standard == [0x04, 0xc0]));
}

fn abort(rig: &mut Rig, task: &Pdu) -> Pdu {
    let mut pdu = rig.request(Opcode::TaskManagementRequest);
    rig.cmd_sn -= 1;
    pdu.header[0] |= 0x40;
    pdu.header[1] = 0x81;
    pdu.set_u32(20, task.itt());
    pdu.set_u32(32, task.cmd_sn());
    rig.put(pdu);
    rig.next()
}

#[test]
fn an_aborted_task_says_nothing_more() {
    let mut rig = Rig::login(config(), &[]);
    rig.target.hold();
    let read = rig.read(0, 1);
    rig.put(read.clone());
    let response = abort(&mut rig, &read);
    assert_eq!((response.opcode(), response.response()), (Some(Opcode::TaskManagementResponse), 0));
    rig.target.release();
    assert!(rig.try_next().is_none());
    assert_eq!(abort(&mut rig, &read).response(), 1, "there is no such task any more");
    rig.assert_no_violations();
}

#[test]
fn aborting_a_command_that_never_came_closes_the_gap() {
    let mut rig = Rig::login(config(), &[]);
    let (lost, next) = (rig.read(0, 1), rig.read(1, 1));
    rig.put(next.clone());
    assert!(rig.try_next().is_none());
    assert_eq!(abort(&mut rig, &lost).response(), 0);
    assert_eq!(rig.next().itt(), next.itt());
}

#[test]
fn pings_go_both_ways() {
    let mut config = config();
    config.ping_every = 2;
    let mut rig = Rig::login(config, &[]);
    let mut ping = rig.request(Opcode::NopOut);
    ping.set_u32(20, NO_TAG);
    ping.data = pattern(10).into();
    rig.put(ping.clone());
    let answer = rig.next();
    assert_eq!((answer.itt(), answer.ttt(), answer.data), (ping.itt(), NO_TAG, ping.data));
    for _ in 0..2 {
        let read = rig.read(0, 1);
        rig.put(read);
    }
    let asked = rig.drain().into_iter().find(|pdu| pdu.is(Opcode::NopIn)).unwrap();
    let mut reply = Pdu::new(Opcode::NopOut);
    reply.header[0] |= 0x40;
    reply.set_u32(16, NO_TAG);
    reply.set_u32(20, asked.ttt());
    reply.set_u32(24, rig.cmd_sn);
    rig.put(reply);
    rig.assert_no_violations();
}

#[test]
fn discovery_lists_targets_in_parts() {
    for with_continue in [false, true] {
        let mut config = config();
        config.discovery.targets = (0..20)
            .map(|number| Portal {
                name: format!("iqn.2026-01.org.example:{number}"),
                addresses: vec!["10.0.0.1:3260,1".into(), "[fe80::1]:3260,2".into()],
            })
            .collect();
        config.discovery.split = Some(100);
        config.discovery.with_continue = with_continue;
        let mut rig = Rig::connect(config);
        let names = [NAMES[0], ("SessionType", "Discovery")];
        assert!(rig.login_request(1, 3, FINAL, &names).is_final());
        let mut request = rig.request(Opcode::TextRequest);
        request.set_u32(20, NO_TAG);
        request.data = b"SendTargets=All\0".to_vec().into();
        rig.put(request.clone());
        let mut text = Vec::new();
        loop {
            let part = rig.next();
            text.extend(&part.data);
            if part.is_final() {
                break;
            }
            assert_eq!(part.continues(), with_continue);
            let mut more = request.clone();
            more.data = bytes::Bytes::new();
            more.set_u32(20, part.ttt());
            more.set_u32(24, rig.cmd_sn);
            rig.cmd_sn += 1;
            rig.put(more);
        }
        assert_eq!(Pairs::split(&text).unwrap().0.len(), 60);
        rig.assert_no_violations();
    }
}

#[test]
fn logout_answers_and_closes() {
    let mut rig = Rig::login(config(), &[]);
    let logout = rig.request(Opcode::LogoutRequest);
    rig.put(logout.clone());
    let response = rig.next();
    assert_eq!((response.itt(), response.response()), (logout.itt(), 0));
    assert!(rig.try_next().is_none());
    assert!(rig.target.is_closed(rig.id));
    assert_eq!(rig.target.sessions(), 0);
    rig.assert_no_violations();
}

#[test]
fn async_messages_and_injected_pdus_are_numbered() {
    let mut rig = Rig::login(config(), &[]);
    let next = rig.exp_stat_sn;
    rig.target.async_message(rig.id, 1, [0, 0, 5]);
    rig.target.show_window(rig.id);
    let (event, window) = (rig.next(), rig.next());
    assert_eq!((event.event(), event.stat_sn(), event.u16_at(42)), (1, next, 5));
    assert_eq!((window.stat_sn(), window.max_cmd_sn()), (next + 1, rig.cmd_sn + 63));
}
