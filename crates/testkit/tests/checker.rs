//! The observer sees what is wrong. Each case is one wrong PDU after a clean login.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test may panic")]

mod rig;

use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use rig::{NAMES, Rig, config, pattern};

const KEYS: [(&str, &str); 3] =
    [("InitialR2T", "No"), ("FirstBurstLength", "1024"), ("MaxOutstandingR2T", "4")];

/// The rules broken by what `act` does after a login with 4 commands of window.
fn broken(act: impl FnOnce(&mut Rig)) -> Vec<&'static str> {
    let mut config = config();
    config.window = 4;
    config.r2t.burst = Some(1024);
    let mut rig = Rig::login(config, &KEYS);
    act(&mut rig);
    rig.target.violations().iter().map(|violation| violation.rule).collect()
}

/// A PDU that is right but for what `spoil` does to it.
fn spoilt(make: impl FnOnce(&mut Rig) -> Pdu, spoil: impl FnOnce(&mut Pdu)) -> Vec<&'static str> {
    broken(|rig| {
        let mut pdu = make(rig);
        spoil(&mut pdu);
        rig.put(pdu);
    })
}

fn read(rig: &mut Rig) -> Pdu {
    rig.read(0, 1)
}

#[test]
fn right_pdus_break_nothing() {
    assert!(spoilt(read, |_| {}).is_empty());
    assert!(spoilt(|rig| rig.write(0, 1, &pattern(512)), |_| {}).is_empty());
    assert!(spoilt(|rig| rig.write(0, 1, &[]), |_| {}).is_empty());
    assert!(spoilt(|rig| rig.request(Opcode::LogoutRequest), |_| {}).is_empty());
}

#[test]
fn numbers_are_watched() {
    assert_eq!(spoilt(read, |pdu| pdu.set_u32(24, 101)), ["SEQ-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.set_u32(24, 104)), ["SEQ-06", "SEQ-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.set_u32(24, 99)), ["SEQ-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.set_u32(16, NO_TAG)), ["SEQ-21"]);
    let twice = broken(|rig| {
        let mut pdu = read(rig);
        rig.put(pdu.clone());
        pdu.set_u32(24, 101);
        rig.put(pdu);
    });
    assert_eq!(twice, ["SEQ-21"]);
    let immediate = |pdu: &mut Pdu| {
        pdu.header[0] |= 0x40;
        pdu.set_u32(24, 101);
    };
    assert_eq!(spoilt(read, immediate), ["SEQ-03"]);
    let stat_sn = |change: u32| {
        broken(|rig| {
            rig.exp_stat_sn = rig.exp_stat_sn.wrapping_add(change);
            let mut pdu = read(rig);
            rig.put(pdu.clone());
            rig.exp_stat_sn = rig.exp_stat_sn.wrapping_sub(1);
            pdu.set_u32(16, 9);
            pdu.set_u32(24, 101);
            rig.put(pdu);
        })
    };
    assert_eq!(stat_sn(0), ["SEQ-13"], "it goes back");
    assert_eq!(stat_sn(1), ["SEQ-13"], "it runs ahead");
}

#[test]
fn a_tag_is_free_once_its_status_is_acknowledged() {
    let rules = broken(|rig| {
        let pdu = read(rig);
        rig.put(pdu.clone());
        rig.drain();
        let mut again = pdu;
        again.set_u32(24, rig.cmd_sn);
        rig.put(again);
    });
    assert!(rules.is_empty(), "{rules:?}");
}

#[test]
fn reserved_fields_are_watched() {
    assert_eq!(spoilt(read, |pdu| pdu.header[0] |= 0x80), ["ERR-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.header[1] |= 0x08), ["ERR-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.header[3] = 1), ["ERR-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.header[2] = 0x10), ["PL2-02"]);
    assert_eq!(spoilt(read, |pdu| pdu.header[1] = 0x80), ["WR-23"], "a length without a direction");
    assert_eq!(spoilt(read, |pdu| pdu.header[1] |= 5), ["WR-23"], "no task attribute");
    let logout = |rig: &mut Rig| rig.request(Opcode::LogoutRequest);
    assert_eq!(spoilt(logout, |pdu| pdu.header[1] &= 0x7f), ["LAY-01"]);
    assert_eq!(spoilt(|rig| rig.request(Opcode::LoginRequest), |_| {}), ["ERR-10"]);
    assert_eq!(spoilt(read, |pdu| pdu.header[0] = 0x21), ["ERR-14"]);
    let write = |rig: &mut Rig| rig.write(0, 1, &pattern(511));
    assert_eq!(spoilt(write, |pdu| pdu.pad = 1), ["DIG-06"]);
    assert_eq!(spoilt(|rig| rig.request(Opcode::Snack), |pdu| pdu.set_u32(24, 0)), ["SNK-01"]);
}

#[test]
fn first_bursts_are_watched() {
    let long = |rig: &mut Rig| rig.write(0, 4, &pattern(1536));
    assert_eq!(spoilt(long, |_| {}), ["WR-04"]);
    let whole = |rig: &mut Rig| rig.write(0, 1, &pattern(512));
    assert_eq!(spoilt(whole, |pdu| pdu.header[1] &= 0x7f), ["WR-01"]);
    assert_eq!(spoilt(read, |pdu| pdu.data = pattern(4).into()), ["WR-01"]);
    let burst = |offset, data: usize, sn, last| {
        broken(|rig| {
            let mut write = rig.write(0, 4, &pattern(512));
            write.header[1] &= 0x7f;
            rig.put(write.clone());
            rig.unsolicited(write.itt(), sn, offset, &pattern(data), last);
        })
    };
    assert!(burst(512, 512, 0, true).is_empty());
    assert_eq!(burst(0, 512, 0, true), ["WR-06"]);
    assert_eq!(burst(512, 512, 1, true), ["SEQ-23"]);
    assert_eq!(burst(512, 256, 0, true), ["WR-06"]);
    assert_eq!(burst(512, 512, 0, false), ["WR-06"]);
    assert_eq!(burst(512, 1024, 0, true), ["WR-05"]);
    let unannounced = broken(|rig| rig.unsolicited(3, 0, 0, &pattern(4), true));
    assert_eq!(unannounced, ["WR-06"]);
}

#[test]
fn bursts_keep_the_order_of_commands() {
    let rules = broken(|rig| {
        for _ in 0..2 {
            let mut write = rig.write(0, 2, &[]);
            write.header[1] &= 0x7f;
            rig.put(write);
        }
        rig.unsolicited(2, 0, 0, &pattern(1024), true);
        rig.unsolicited(1, 0, 0, &pattern(1024), true);
    });
    assert_eq!(rules, ["WR-07"]);
}

/// A write of 2048 bytes whose R2T for the last 1024 is answered by a spoilt Data-Out.
fn answered(spoil: impl FnOnce(&mut Pdu)) -> Vec<&'static str> {
    broken(|rig| {
        let write = rig.write(0, 4, &pattern(1024));
        rig.put(write);
        let r2t = rig.next();
        let mut data = Pdu::new(Opcode::DataOut);
        data.set_u32(16, r2t.itt());
        data.set_u32(20, r2t.ttt());
        data.set_u32(40, 1024);
        data.data = pattern(1024).into();
        spoil(&mut data);
        rig.put(data);
    })
}

#[test]
fn solicited_data_are_watched() {
    assert!(answered(|_| {}).is_empty());
    assert_eq!(answered(|pdu| pdu.set_u32(20, 99)), ["WR-10"]);
    assert_eq!(answered(|pdu| pdu.set(9, &[1])), ["WR-10"]);
    assert_eq!(answered(|pdu| pdu.set_u32(40, 0)), ["WR-12"]);
    assert_eq!(answered(|pdu| pdu.set_u32(36, 1)), ["SEQ-23"]);
    assert_eq!(answered(|pdu| pdu.header[1] = 0), ["WR-12"]);
    assert_eq!(answered(|pdu| pdu.data = pattern(512).into()), ["WR-12"]);
    assert_eq!(answered(|pdu| pdu.data = pattern(1500).into()), ["WR-08"]);
    assert_eq!(answered(|pdu| pdu.set_u32(24, 7)), ["ERR-02"]);
}

#[test]
fn write_modes_are_watched() {
    let mut rig = Rig::login(config(), &[("InitialR2T", "Yes"), ("ImmediateData", "No")]);
    let immediate = rig.write(0, 2, &pattern(512));
    rig.put(immediate);
    let mut announced = rig.write(0, 2, &[]);
    announced.header[1] &= 0x7f;
    rig.put(announced);
    let rules: Vec<_> = rig.target.violations().iter().map(|found| found.rule).collect();
    assert_eq!(rules, ["WR-03", "WR-03"]);
}

#[test]
fn segments_keep_to_the_limit_of_the_target() {
    let mut config = config();
    config.keys.max_recv_data_segment_length = Some(512);
    let mut rig = Rig::login(config, &[]);
    let write = rig.write(0, 2, &pattern(1024));
    rig.put(write);
    assert_eq!(rig.target.violations()[0].rule, "KEY-13");
}

/// An ABORT TASK of a read that waits, spoilt.
fn aborted(spoil: impl FnOnce(&mut Pdu)) -> Vec<&'static str> {
    broken(|rig| {
        rig.target.hold();
        let task = read(rig);
        rig.put(task.clone());
        let mut pdu = Pdu::new(Opcode::TaskManagementRequest);
        pdu.header[0] |= 0x40;
        pdu.header[1] = 0x81;
        pdu.set_u32(16, 50);
        pdu.set_u32(20, task.itt());
        pdu.set_u32(24, rig.cmd_sn);
        pdu.set_u32(32, task.cmd_sn());
        spoil(&mut pdu);
        rig.put(pdu);
    })
}

#[test]
fn task_management_is_watched() {
    assert!(aborted(|_| {}).is_empty());
    assert_eq!(aborted(|pdu| pdu.set(9, &[1])), ["TMF-01"]);
    assert_eq!(aborted(|pdu| pdu.header[1] = 0x82), ["TMF-02", "TMF-03"]);
    assert_eq!(aborted(|pdu| pdu.set_u32(32, 1)), ["TMF-03"]);
    assert_eq!(aborted(|pdu| pdu.set_u32(20, NO_TAG)), ["TMF-02"]);
    assert_eq!(aborted(|pdu| pdu.data = pattern(4).into()), ["ERR-02"]);
}

/// The answer to a ping with LUN 0, spoilt.
fn answered_ping(spoil: impl FnOnce(&mut Pdu)) -> Vec<&'static str> {
    broken(|rig| {
        rig.target.ping(rig.id, 0);
        let ping = rig.next();
        let mut reply = Pdu::new(Opcode::NopOut);
        reply.header[0] |= 0x40;
        reply.set_u32(16, NO_TAG);
        reply.set_u32(20, ping.ttt());
        reply.set_u32(24, rig.cmd_sn);
        spoil(&mut reply);
        rig.put(reply);
    })
}

#[test]
fn answers_to_pings_are_watched() {
    assert!(answered_ping(|_| {}).is_empty());
    assert_eq!(answered_ping(|pdu| pdu.set(9, &[1])), ["NOP-01"]);
    assert_eq!(answered_ping(|pdu| pdu.set_u32(20, 77)), ["NOP-01"]);
    assert_eq!(answered_ping(|pdu| pdu.header[0] = 0), ["NOP-01"]);
}

#[test]
fn nothing_follows_a_logout() {
    let rules = broken(|rig| {
        let logout = rig.request(Opcode::LogoutRequest);
        rig.put(logout);
        let late = read(rig);
        rig.put(late);
    });
    assert_eq!(rules, ["LGO-01"]);
    let cid = |pdu: &mut Pdu| pdu.set(20, &[0, 1]);
    assert_eq!(spoilt(|rig| rig.request(Opcode::LogoutRequest), cid), ["LGO-02"]);
}

/// The rules broken by one login request.
fn login(csg: u8, nsg: u8, keys: &[(&str, &str)]) -> Vec<&'static str> {
    let mut rig = Rig::connect(config());
    rig.login_request(csg, nsg, FINAL, keys);
    rig.target.violations().iter().map(|violation| violation.rule).collect()
}

#[test]
fn logins_are_watched() {
    assert!(login(1, 3, &NAMES).is_empty());
    assert_eq!(login(1, 3, &NAMES[1..]), ["LOG-05"]);
    assert_eq!(login(0, 2, &NAMES), ["LOG-07"]);
    let twice = [&NAMES[..], &NAMES[..1]].concat();
    assert_eq!(login(1, 3, &twice), ["LOG-05"]);
    assert_eq!(login(0, 1, &[&NAMES[..], &[("InitialR2T", "No")]].concat()), ["LOG-22"]);
    assert_eq!(login(1, 3, &[&NAMES[..], &[("lower", "x")]].concat()), ["TXT-03"]);
    let mut rig = Rig::connect(config());
    let mut request = Pdu::new(Opcode::LoginRequest);
    request.header[1] = FINAL | 0x07;
    request.set(8, &[0xc0]);
    request.data = b"InitiatorName=a\0TargetName=b".to_vec().into();
    rig.put(request);
    let rules: Vec<_> = rig.target.violations().iter().map(|found| found.rule).collect();
    assert_eq!(rules, ["LOG-03", "ISI-01", "TXT-01"]);
}

#[test]
fn r2ts_of_a_task_are_answered_in_their_order() {
    let rules = broken(|rig| {
        let mut write = rig.write(0, 8, &pattern(1024));
        write.header[1] |= FINAL;
        rig.put(write);
        let asks = rig.drain();
        let data = pattern(4096);
        rig.answer(&asks[1], &data, 1024);
        rig.answer(&asks[0], &data, 1024);
    });
    assert_eq!(rules, ["WR-09"]);
}

#[test]
fn unanswered_pings_are_known() {
    let mut rig = Rig::login(config(), &[]);
    rig.target.ping(rig.id, 7);
    let ping = rig.next();
    assert_eq!(rig.target.unanswered_pings(rig.id), [(ping.ttt(), 7)]);
}
