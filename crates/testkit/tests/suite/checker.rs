//! Tests that the checker finds violations. Each case is one wrong PDU after a correct login.

use crate::rig::{NAMES, Rig, config, pattern};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};

const KEYS: [(&str, &str); 3] =
    [("InitialR2T", "No"), ("FirstBurstLength", "1024"), ("MaxOutstandingR2T", "4")];

/// Returns the rules that `act` breaks after a login with a window of 4 commands.
fn broken(act: impl FnOnce(&mut Rig)) -> Vec<&'static str> {
    let mut config = config();
    config.window = 4;
    config.r2t.burst = Some(1024);
    let mut rig = Rig::login(config, &KEYS);
    act(&mut rig);
    rig.target.violations().iter().map(|violation| violation.rule).collect()
}

/// Returns the rules that a correct PDU breaks after a change by `spoil`.
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

/// Returns the rules that a spoilt Data-Out breaks. It is sent for the R2T of the last 1024 bytes of a write
/// of 2048 bytes.
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

/// Returns the rules that a spoilt ABORT TASK of a waiting read breaks.
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

/// Returns the rules that a spoilt response to a ping with LUN 0 breaks.
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

/// Returns the rules that one login request breaks.
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

/// Returns the rules that a Data-Out for an R2T breaks if it is sent after the ABORT TASK of its write, or
/// after another task management function.
fn answered_behind(function: u8, refuses: bool) -> Vec<&'static str> {
    broken(|rig| {
        rig.target.config_mut().task_management_response = refuses.then_some(5);
        let write = rig.write(0, 4, &pattern(1024));
        rig.put(write.clone());
        let r2t = rig.next();
        let mut request = rig.request(Opcode::TaskManagementRequest);
        (request.header[0], request.header[1]) = (request.header[0] | 0x40, FINAL | function);
        request.set_u32(20, if function == 1 { write.itt() } else { NO_TAG });
        request.set_u32(32, if function == 1 { write.cmd_sn() } else { 0 });
        rig.put(request);
        if refuses {
            rig.drain();
        }
        rig.answer(&r2t, &pattern(2048), 1024);
    })
}

/// WR-20: after a function for many tasks, R2Ts are served until the response (RFC 7143 §4.2.3.3). After the
/// ABORT TASK of a single task they must not be served, unless the target refuses the ABORT TASK.
#[test]
fn data_behind_an_abort_are_watched() {
    const ABORT_TASK_SET: u8 = 2;
    assert_eq!(answered_behind(1, false), ["WR-20"]);
    assert_eq!(answered_behind(1, true), [""; 0]);
    assert_eq!(answered_behind(ABORT_TASK_SET, false), [""; 0]);
}

/// LAY-03, NOP-03: the checker reports additional headers in other PDUs than commands, and pings with a LUN
/// or with a target transfer tag that no ping of the target has.
#[test]
fn pings_are_watched() {
    let ping = |rig: &mut Rig| {
        let mut ping = rig.request(Opcode::NopOut);
        ping.header[1] = FINAL;
        ping.set_u32(20, NO_TAG);
        ping
    };
    assert_eq!(spoilt(ping, |_| {}), [""; 0]);
    assert_eq!(spoilt(ping, |pdu| pdu.set_u32(20, 7)), ["NOP-03"]);
    assert_eq!(spoilt(ping, |pdu| pdu.set(9, &[1])), ["NOP-03"]);
    assert_eq!(spoilt(ping, |pdu| pdu.ahs = vec![0, 1, 3, 0].into()), ["LAY-03"]);
}

/// DSC-01, LGO-09: in a discovery session the checker allows only text requests, and a logout that closes the
/// session.
#[test]
fn discovery_sessions_are_watched() {
    let broken = |act: &dyn Fn(&mut Rig) -> Pdu| {
        let mut rig = Rig::connect(config());
        let names = [NAMES[0], ("SessionType", "Discovery")];
        assert_eq!(rig.login_request(1, 3, FINAL, &names).login_status(), 0);
        let pdu = act(&mut rig);
        rig.put(pdu);
        let found = rig.target.violations().iter();
        found.map(|violation| violation.rule).collect::<Vec<_>>()
    };
    let logout = |reason: u8, rig: &mut Rig| {
        let mut logout = rig.request(Opcode::LogoutRequest);
        logout.header[1] = FINAL | reason;
        logout.set(20, &if reason == 1 { rig.cid } else { 0 }.to_be_bytes());
        logout
    };
    assert_eq!(broken(&|rig| logout(0, rig)), [""; 0]);
    assert_eq!(broken(&|rig| logout(1, rig)), ["LGO-09"]);
    assert_eq!(broken(&read), ["DSC-01"]);
}

/// Returns a login request without sending it.
fn login_pdu(rig: &Rig, keys: &str) -> Pdu {
    let mut request = Pdu::new(Opcode::LoginRequest);
    (request.header[0], request.header[1]) = (request.header[0] | 0x40, FINAL | 0x07);
    request.set(8, &rig.isid);
    request.set(20, &rig.cid.to_be_bytes());
    request.set_u32(24, rig.cmd_sn);
    request.data = keys.as_bytes().to_vec().into();
    request
}

/// LOG-01, LOG-02, LOG-04, LOG-08, LOG-11, SEQ-01: in the login phase the checker allows only login requests,
/// one at a time.
#[test]
fn the_login_phase_is_watched() {
    const KEYS: &str = "InitiatorName=a\0TargetName=b\0";
    let broken = |act: &dyn Fn(&mut Rig)| {
        let mut config = config();
        config.login.split = Some(16);
        let mut rig = Rig::connect(config);
        act(&mut rig);
        let found = rig.target.violations().iter();
        found.map(|violation| violation.rule).collect::<Vec<_>>()
    };
    let first = |spoil: &dyn Fn(&mut Pdu)| {
        broken(&|rig| {
            let mut request = login_pdu(rig, KEYS);
            spoil(&mut request);
            rig.put(request);
        })
    };
    assert_eq!(first(&|_| {}), [""; 0]);
    assert_eq!(first(&|pdu| pdu.set(3, &[1])), ["LOG-04"]);
    assert_eq!(first(&|pdu| pdu.header[1] |= 0x40), ["LOG-08"]);
    let command = |rig: &mut Rig| {
        let command = read(rig);
        rig.put(command);
    };
    assert_eq!(broken(&command), ["LOG-01"]);
    let twice = |rig: &mut Rig| {
        let (request, again) = (login_pdu(rig, KEYS), login_pdu(rig, ""));
        rig.put(request);
        rig.put(again);
    };
    assert_eq!(broken(&twice), ["LOG-02"]);
    let two = |text: &'static [(&str, &str)], step: u32| {
        broken(&|rig| {
            let answer = rig.login_request(1, 3, FINAL, &NAMES);
            assert!(answer.continues(), "{answer:?}");
            rig.cmd_sn += step;
            rig.login_request(1, 3, 0, text);
        })
    };
    assert_eq!(two(&[], 0), [""; 0]);
    assert_eq!(two(&[("MaxConnections", "1")], 0), ["LOG-11"]);
    assert_eq!(two(&[], 1), ["SEQ-01"]);
}

/// TXT-09, TXT-20, TXT-21, TXT-22: a connection has one text exchange at a time. Each request comes after the
/// previous response, has the I bit of the first request, and carries the tag and LUN of the response.
#[test]
fn text_exchanges_are_watched() {
    let text = |rig: &mut Rig| {
        let mut text = rig.request(Opcode::TextRequest);
        text.header[1] = FINAL;
        text.set_u32(20, NO_TAG);
        text.data = b"SendTargets=\0".to_vec().into();
        text
    };
    assert_eq!(spoilt(text, |_| {}), [""; 0]);
    assert_eq!(spoilt(text, |pdu| pdu.header[1] |= 0x40), ["TXT-09"]);
    assert_eq!(spoilt(text, |pdu| pdu.set_u32(20, 7)), ["TXT-22"]);
    // Sends the second request of an exchange, after the response to the first request or before it.
    let next = |answered: bool, spoil: &dyn Fn(&mut Pdu)| {
        broken(|rig| {
            rig.target.config_mut().discovery.split = Some(16);
            let first = text(rig);
            rig.put(first.clone());
            let mut next = text(rig);
            next.data = vec![].into();
            next.set_u32(16, first.itt());
            if answered {
                let answer = rig.next();
                assert!(!answer.is_final(), "{answer:?}");
                next.set_u32(20, answer.ttt());
                next.set(8, &answer.lun().to_be_bytes());
            }
            spoil(&mut next);
            rig.put(next);
        })
    };
    assert_eq!(next(true, &|_| {}), [""; 0]);
    assert_eq!(next(true, &|pdu| pdu.header[0] |= 0x40), ["TXT-21"]);
    assert_eq!(next(true, &|pdu| pdu.set_u32(20, 77)), ["TXT-22"]);
    assert_eq!(next(true, &|pdu| pdu.set(9, &[1])), ["TXT-22"]);
    assert_eq!(next(false, &|_| {}), ["TXT-20"]);
    assert_eq!(next(false, &|pdu| pdu.set_u32(16, 99)), ["TXT-20"]);
}

/// WR-11: if an R2T requests more than MaxBurstLength, the checker reports a sequence that is longer than
/// MaxBurstLength.
#[test]
fn sequences_keep_to_the_limit_of_the_session() {
    let mut config = config();
    config.r2t.oversized_burst = Some(1024);
    let keys = [("FirstBurstLength", "512"), ("MaxBurstLength", "512")];
    let mut rig = Rig::login(config, &keys);
    let write = rig.write(0, 2, &[]);
    rig.put(write);
    let r2t = rig.next();
    assert_eq!(r2t.desired_length(), 1024);
    rig.answer(&r2t, &pattern(1024), 1024);
    let rules: Vec<_> = rig.target.violations().iter().map(|found| found.rule).collect();
    assert_eq!(rules, ["WR-11"]);
}
