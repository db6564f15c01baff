//! Tests of several connections in one session: one connection closes another, and the checker knows the
//! effects.

use crate::rig::{NAMES, Rig, config};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use iscsi_testkit::target::ConnId;

/// An initiator with two connections in one session. The rig uses one of them; `other` is the other one, with
/// its ExpStatSN.
struct Two {
    rig: Rig,
    other: (ConnId, u32),
}

impl Two {
    fn new() -> Self {
        let mut rig = Rig::login(config(), &[("MaxConnections", "2")]);
        let other = (rig.id, rig.exp_stat_sn);
        rig.id = rig.target.accept();
        rig.cid = 2;
        rig.exp_stat_sn = 0;
        let joined = rig.login_request(1, 3, FINAL, &NAMES);
        assert_eq!(joined.login_status(), 0, "{joined:?}");
        Self { rig, other }
    }

    /// Makes the rig use the other connection.
    fn switch(&mut self) {
        std::mem::swap(&mut self.rig.id, &mut self.other.0);
        std::mem::swap(&mut self.rig.exp_stat_sn, &mut self.other.1);
    }

    /// Sends a logout for a connection over the current one, and returns the response code.
    fn close(&mut self, cid: u16) -> u8 {
        let mut logout = self.rig.request(Opcode::LogoutRequest);
        self.rig.cmd_sn -= 1;
        logout.header[0] |= 0x40;
        logout.header[1] = FINAL | 1;
        logout.set(20, &cid.to_be_bytes());
        self.rig.put(logout);
        self.rig.next().response()
    }

    fn rules(&self) -> Vec<&'static str> {
        self.rig.target.violations().iter().map(|violation| violation.rule).collect()
    }
}

/// RFC 7143 §11.14: commands in flight on the closed connection end, even if `ExpCmdSN` covers them. Commands
/// that waited for their turn count as never received.
#[test]
fn one_connection_closes_another() {
    let mut two = Two::new();
    two.rig.target.hold();
    let counted = two.rig.read(0, 1);
    let hole = two.rig.read(1, 1);
    let early = two.rig.read(2, 1);
    two.rig.put(counted);
    two.rig.put(early.clone());
    assert_eq!(two.rig.target.active_tasks(), 1);
    let gone = two.rig.id;
    two.switch();
    assert_eq!(two.close(2), 0);
    assert!(two.rig.target.is_closed(gone));
    assert_eq!(two.rig.target.active_tasks(), 0);
    assert_eq!(two.close(2), 1, "it is not there any more");
    two.rig.put(hole);
    assert_eq!(two.rig.target.active_tasks(), 1, "the early one is gone");
    two.rig.put(early);
    assert_eq!(two.rig.target.active_tasks(), 2);
    assert!(two.rules().is_empty(), "{:?}", two.rig.target.violations());
}

/// A `CmdSN` may be used again only after the logout of the connection on which it was lost.
#[test]
fn numbers_come_again_only_after_the_logout() {
    for (closes, expected) in [(false, vec!["SEQ-02"]), (true, vec![])] {
        let mut two = Two::new();
        let hole = two.rig.read(1, 1);
        let early = two.rig.read(2, 1);
        two.rig.put(early.clone());
        two.rig.target.disconnected(two.rig.id);
        two.switch();
        if closes {
            assert_eq!(two.close(2), 1);
        }
        two.rig.put(hole);
        two.rig.put(early);
        assert_eq!(two.rules(), expected);
    }
}

/// SEQ-04: `CmdSN`s increase on each connection, however the connections overtake each other.
#[test]
fn numbers_rise_on_each_connection() {
    let mut two = Two::new();
    let [first, second] = [0, 1].map(|lba| two.rig.read(lba, 1));
    two.rig.put(second);
    two.switch();
    two.rig.put(first);
    assert_eq!(two.rules(), [""; 0]);
    let mut two = Two::new();
    let [first, second] = [0, 1].map(|lba| two.rig.read(lba, 1));
    two.rig.put(second);
    two.rig.put(first);
    assert_eq!(two.rules(), ["SEQ-04"]);
}

/// RFC 7143 §11.5.1: ABORT TASK must be sent on the connection of its task. The checker reports an ABORT TASK
/// on another connection.
#[test]
fn aborts_over_the_wrong_connection_are_seen() {
    for wrong in [false, true] {
        let mut two = Two::new();
        two.rig.target.hold();
        let read: Pdu = two.rig.read(0, 1);
        let mut abort = two.rig.request(Opcode::TaskManagementRequest);
        abort.header[0] |= 0x40;
        abort.header[1] = FINAL | 1;
        abort.set_u32(20, read.itt());
        abort.set_u32(32, read.cmd_sn());
        two.rig.put(read);
        if wrong {
            two.switch();
        }
        two.rig.put(abort);
        assert_eq!(two.rules(), if wrong { vec!["TMF-04"] } else { vec![] });
    }
}

/// LGO-01: connections overtake each other, so a request that was sent before the logout of the session may
/// arrive after the logout over another connection. The checker reports a request whose CmdSN is after that
/// of the logout.
#[test]
fn nothing_is_numbered_behind_the_logout_of_a_session() {
    let behind = |act: &dyn Fn(&mut Two)| {
        let mut two = Two::new();
        two.rig.target.hold();
        let before = two.rig.read(0, 1);
        two.switch();
        let mut logout = two.rig.request(Opcode::LogoutRequest);
        (logout.header[0], logout.header[1]) = (logout.header[0] | 0x40, FINAL);
        two.rig.cmd_sn -= 1;
        two.rig.put(logout);
        two.switch();
        two.rig.put(before);
        act(&mut two);
        two.rules()
    };
    let ping = |two: &mut Two, ahead: u32| {
        let mut ping = two.rig.request(Opcode::NopOut);
        ping.header[0] |= 0x40;
        ping.set_u32(20, NO_TAG);
        two.rig.cmd_sn -= 1;
        ping.set_u32(24, two.rig.cmd_sn + ahead);
        two.rig.put(ping);
    };
    assert_eq!(behind(&|two| ping(two, 0)), [""; 0]);
    assert_eq!(behind(&|two| ping(two, 1)), ["LGO-01"]);
    let read = |two: &mut Two| {
        let late = two.rig.read(1, 1);
        two.rig.put(late);
    };
    assert_eq!(behind(&read), ["LGO-01"]);
}
