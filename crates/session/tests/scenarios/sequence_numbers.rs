//! Tests of CmdSN, StatSN and the command window (RFC 7143 §4.2.2).

use std::collections::HashSet;
use std::time::Duration;

use iscsi_pdu::CmdSn;
use iscsi_session::{ProtocolError, SessionError};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdus::Numbers;

use crate::pair::{Pair, config, pattern, read, target_config, write};

fn cmd_sns(pair: &Pair) -> Vec<u32> {
    pair.target.commands().iter().map(|command| command.cmd_sn).collect()
}

/// SEQ-01, SEQ-02, SEQ-12, UNH login 1.1, 4.1, 4.2: the numbers may start anywhere and wrap.
#[test]
fn seq_02_numbers_run_across_the_wrap() {
    for first in [0, 1, 0x7fff_fffe, u32::MAX - 1] {
        for stat_sn in [0, u32::MAX, 0x8000_0000] {
            let mut config = config();
            config.first_cmd_sn = CmdSn::new(first);
            let mut target = target_config(256);
            target.first_stat_sn = stat_sn;
            let mut pair = Pair::logged_in(config, target);
            for lba in 0..6 {
                pair.execute(read(lba, 1)).unwrap();
            }
            let expected: Vec<u32> = (0..6).map(|n| first.wrapping_add(n)).collect();
            assert_eq!(cmd_sns(&pair), expected);
            pair.assert_no_violations();
        }
    }
}

/// SEQ-04, SEQ-06, SEQ-21, QRK-15, peers' fault 9: 200 concurrent tasks are sent in order and never beyond the
/// window, whatever its size.
#[test]
fn seq_06_window_of_any_size_is_respected() {
    for window in [1, 2, 64] {
        let mut target = target_config(1024);
        target.window = window;
        let mut pair = Pair::logged_in(config(), target);
        let tags: Vec<_> = (0..200)
            .map(|n| pair.submit(if n % 3 == 0 { write(n, pattern(512, 1)) } else { read(n, 1) }))
            .collect();
        pair.drive();
        assert!(tags.iter().all(|tag| pair.completed[tag].is_ok()));
        assert_eq!(tags.iter().collect::<HashSet<_>>().len(), 200);
        let sns = cmd_sns(&pair);
        assert!(sns.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
        pair.assert_no_violations();
    }
}

/// SEQ-07, UNH FFP 3.1, 16.5, NOP-01, QRK-25: while the window is closed, commands wait and responses to
/// pings are sent; a NOP-In opens the window.
#[test]
fn seq_07_closed_window_blocks_commands_only() {
    let mut target = target_config(256);
    target.window = 1;
    let mut pair = Pair::logged_in(config(), target);
    pair.target.set_window(0);
    let first = pair.submit(read(0, 1));
    let second = pair.submit(read(1, 1));
    pair.drive();
    assert!(pair.completed.contains_key(&first) && !pair.completed.contains_key(&second));
    let link = pair.link(0);
    let open = pair.session.window();
    assert_eq!(open, 0);
    pair.target.set_window(4);
    let ping = iscsi_testkit::pdus::nop_in().ttt(0);
    pair.target.inject(link, ping.build(Numbers { stat_sn: 0, exp_cmd_sn: 0, max_cmd_sn: 0 }));
    pair.drive();
    assert!(pair.completed[&second].is_ok());
    let pongs =
        pair.target.received().iter().filter(|(_, pdu)| pdu.opcode() == Some(Opcode::NopOut));
    assert_eq!(pongs.count(), 1);
    pair.assert_no_violations();
}

/// SEQ-08, SEQ-09: the window never shrinks, and a contradictory pair of ExpCmdSN and MaxCmdSN is ignored.
#[test]
fn seq_09_stale_window_is_ignored() {
    for (at, value) in [(32, 0), (28, 0x7000_0000)] {
        let mut target = target_config(256);
        target.faults.push(Fault::sending(Opcode::DataIn, 0, Effect::SetWord { at, value }));
        let mut pair = Pair::logged_in(config(), target);
        let before = pair.session.window();
        pair.execute(read(0, 1)).unwrap();
        assert!(pair.session.window() + 1 >= before);
        pair.execute(read(1, 1)).unwrap();
        pair.assert_no_violations();
    }
}

/// SEQ-15, SEQ-10, and the appendix of faults: an R2T consumes no StatSN, whatever it contains.
#[test]
fn seq_15_r2t_uses_no_stat_sn_up() {
    let mut target = target_config(256);
    target.keys.immediate_data = false;
    target.keys.initial_r2t = true;
    target.keys.max_burst_length = 1024;
    target.keys.first_burst_length = 1024;
    let mut pair = Pair::logged_in(config(), target);
    for lba in 0..4 {
        pair.execute(write(lba * 8, pattern(4096, 1))).unwrap();
    }
    assert!(pair.session.stats().r2ts >= 16);
    pair.assert_no_violations();
}

/// SEQ-16, SEQ-17, UNH FFP 5.1: a jump in StatSN ends the session, and the response with it completes no
/// command.
#[test]
fn seq_16_stat_sn_gap_ends_the_session() {
    for jump in [1, 100, 1 << 31, 0u32.wrapping_sub(1 << 25)] {
        let mut target = target_config(256);
        target.data_in.separate_status = true;
        target.faults.push(Fault::sending(Opcode::ScsiResponse, 1, Effect::SkipStatSn(jump)));
        let mut pair = Pair::logged_in(config(), target);
        pair.execute(read(0, 1)).unwrap();
        let itt = pair.submit(read(0, 1));
        pair.drive();
        // After a small jump the missing responses have a short time to arrive, so the command has not ended
        // yet.
        assert_eq!(pair.completed.contains_key(&itt), jump > 100);
        pair.advance(Duration::from_secs(5));
        assert!(pair.completed[&itt].is_err());
        let error = pair.ended.clone().unwrap().unwrap_err();
        assert!(matches!(error, SessionError::Protocol(ProtocolError::StatSn { .. })), "{error:?}");
    }
}

/// SEQ-18: a response that arrives twice is delivered once.
#[test]
fn seq_18_repeated_response_is_delivered_once() {
    let mut target = target_config(256);
    target.data_in.separate_status = true;
    target.faults.push(Fault::sending(Opcode::ScsiResponse, 0, Effect::Duplicate));
    let mut pair = Pair::logged_in(config(), target);
    pair.execute(read(0, 1)).unwrap();
    pair.execute(read(1, 1)).unwrap();
    assert!(pair.ended.is_none());
}

/// SEQ-19: a response for no task is a protocol error.
#[test]
fn seq_19_response_for_an_unknown_task_ends_the_session() {
    let mut target = target_config(256);
    target.data_in.separate_status = true;
    target.faults.push(Fault::wrong_itt(Opcode::ScsiResponse, 0, 0x0012_3001));
    let mut pair = Pair::logged_in(config(), target);
    assert!(pair.execute(read(0, 1)).is_err());
    let error = pair.ended.clone().unwrap().unwrap_err();
    assert!(matches!(error, SessionError::Protocol(ProtocolError::Task { .. })));
}

/// SEQ-05: commands that are aborted before they are sent leave no gap in CmdSN.
#[test]
fn seq_05_commands_given_up_leave_no_hole() {
    let mut target = target_config(256);
    target.window = 2;
    let mut pair = Pair::logged_in(config(), target);
    let tags: Vec<_> = (0..20).map(|lba| pair.submit(read(lba, 1))).collect();
    for tag in tags.iter().step_by(2) {
        pair.session.abort(*tag, pair.now);
    }
    pair.drive();
    assert!(tags.iter().skip(1).step_by(2).all(|tag| pair.completed[tag].is_ok()));
    assert_eq!(cmd_sns(&pair).len(), 10);
    pair.execute(read(0, 1)).unwrap();
    pair.assert_no_violations();
}
