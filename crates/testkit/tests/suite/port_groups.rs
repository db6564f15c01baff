//! Tests of the target port groups of an array whose ports are several targets.

use crate::rig::{Rig, config};
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::scsi::{AccessState, PortGroup, PortGroups, Sense, TargetPort, Unit, status};

/// Returns an array with port 1 in the preferred group 1, and ports 2 and 3 in group 2, which is in standby.
fn groups() -> PortGroups {
    let standby = PortGroup::new(2, [2, 3]).with_state(AccessState::Standby);
    PortGroups::new([PortGroup::new(1, [1]).preferred(), standby])
}

/// Logs in through a port of the array.
fn port(groups: &PortGroups, port: u16, unit: &Unit) -> Rig {
    let config = config().with_unit(0, unit.clone());
    Rig::login(config.with_port(TargetPort::new(groups.clone(), port)), &[])
}

fn unit() -> Unit {
    config().units.remove(&0).unwrap()
}

fn run(rig: &mut Rig, flags: u8, cdb: &[u8], edtl: u32, data: &[u8]) -> Pdu {
    let command = rig.command(flags, cdb, edtl, data);
    rig.put(command);
    rig.next()
}

fn sense(response: &Pdu) -> Option<Sense> {
    let fixed = response.data.get(2..)?;
    Some(Sense::new(fixed[2], fixed[12], fixed[13]))
}

/// Returns the sense of TEST UNIT READY; `None` if it ends with GOOD.
fn ready(rig: &mut Rig) -> Option<Sense> {
    sense(&run(rig, 0x80, &[0], 0, &[]))
}

fn report(rig: &mut Rig, format: u8) -> Vec<u8> {
    let cdb = [0xa3, 0x0a | format << 5, 0, 0, 0, 0, 0, 0, 0, 128];
    run(rig, 0xc0, &cdb, 128, &[]).data.to_vec()
}

fn set(rig: &mut Rig, descriptors: &[u8]) -> Pdu {
    let list = [&[0; 4], descriptors].concat();
    let length = u8::try_from(list.len()).unwrap();
    run(rig, 0xa0, &[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, length], length.into(), &list)
}

/// SPC-4 §6.37: REPORT TARGET PORT GROUPS returns both kinds of headers, and descriptors with the right
/// fields.
#[test]
fn groups_are_reported_with_both_headers() {
    let groups = groups();
    groups.set_implicit_transition_time(30);
    let mut rig = port(&groups, 1, &unit());
    let first = [0x80, 0xcf, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    let second = [0x02, 0xcf, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3];
    let descriptors = [&first[..], &second].concat();
    assert_eq!(report(&mut rig, 0), [&[0, 0, 0, 28][..], &descriptors].concat());
    let header = [0, 0, 0, 32, 0x10, 30, 0, 0];
    assert_eq!(report(&mut rig, 1), [&header[..], &descriptors].concat());
    groups.refuse_extended_header();
    let refused = run(&mut rig, 0xc0, &[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 0, 128], 128, &[]);
    assert_eq!(sense(&refused), Some(Sense::INVALID_FIELD));
    rig.assert_no_violations();
}

/// SPC-4 §6.6.2, §7.8.6: INQUIRY data report what may change the states, and VPD page 83h identifies the
/// port.
#[test]
fn inquiry_tells_port_and_group() {
    let groups = groups();
    let mut rig = port(&groups, 3, &unit());
    assert_eq!(run(&mut rig, 0xc0, &[0x12, 0, 0, 0, 36], 36, &[]).data[5], 0x30);
    let page = run(&mut rig, 0xc0, &[0x12, 1, 0x83, 0, 64], 64, &[]).data;
    let designators = [0x51, 0x94, 0, 4, 0, 0, 0, 3, 0x51, 0x95, 0, 4, 0, 0, 0, 2];
    assert_eq!(page[16..], designators);
    groups.set_support(0);
    assert_eq!(run(&mut rig, 0xc0, &[0x12, 0, 0, 0, 36], 36, &[]).data[5], 0);
    for cdb in [[0xa3, 0x0a], [0xa4, 0x0a]] {
        assert_eq!(sense(&run(&mut rig, 0x80, &cdb, 0, &[])), Some(Sense::INVALID_OPCODE));
    }
}

/// SPC-4 §5.11: each port serves the commands that the state of its group allows, and always the commands
/// that query the groups.
#[test]
fn a_port_serves_what_its_group_does() {
    let groups = groups();
    let (mut active, mut standby) = (port(&groups, 1, &unit()), port(&groups, 2, &unit()));
    assert_eq!(ready(&mut active), None);
    assert_eq!(ready(&mut standby), Some(Sense::new(2, 0x04, 0x0b)));
    for (state, ascq) in [
        (AccessState::Unavailable, 0x0c),
        (AccessState::Offline, 0x12),
        (AccessState::Transitioning, 0x0a),
    ] {
        groups.set_state(2, state);
        if state != AccessState::Transitioning {
            assert_eq!(ready(&mut standby), Some(Sense::ACCESS_STATE_CHANGED), "{state:?}");
        }
        assert_eq!(ready(&mut standby), Some(Sense::new(2, 0x04, ascq)), "{state:?}");
        assert_eq!(report(&mut standby, 0).len(), 32, "{state:?}");
        let reservations = run(&mut standby, 0xc0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8], 8, &[]);
        assert_eq!(sense(&reservations), Some(Sense::new(2, 0x04, ascq)), "{state:?}");
    }
    groups.set_state(2, AccessState::Standby);
    assert_eq!(ready(&mut standby), Some(Sense::ACCESS_STATE_CHANGED));
    let keys = run(&mut standby, 0xc0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8], 8, &[]);
    assert_eq!(keys.data.len(), 8, "registrations are served in standby");
}

/// SPC-4 §5.11.2.1: all sessions through all ports are informed when a change is complete, but not when it
/// begins.
#[test]
fn every_session_is_told_of_a_change() {
    let groups = groups();
    let mut rigs = [port(&groups, 1, &unit()), port(&groups, 2, &unit())];
    groups.set_state(1, AccessState::Transitioning);
    assert_eq!(ready(&mut rigs[0]), Some(Sense::new(2, 0x04, 0x0a)));
    groups.set_state(1, AccessState::ActiveNonOptimized);
    groups.set_state(1, AccessState::ActiveNonOptimized);
    groups.set_preferred(2, true);
    for rig in &mut rigs {
        assert_eq!(ready(rig), Some(Sense::ACCESS_STATE_CHANGED), "once for several changes");
    }
    assert_eq!(ready(&mut rigs[0]), None);
    assert_eq!(report(&mut rigs[0], 0)[4..12], [0x81, 0xcf, 0, 1, 0, 2, 0, 1], "by the array");
    let mut late = port(&groups, 1, &unit());
    assert_eq!(ready(&mut late), None, "a new session asks for itself");
}

/// SPC-4 §6.45: SET TARGET PORT GROUPS informs the other sessions; a list with an impossible change is
/// refused as a whole.
#[test]
fn a_session_sets_the_states() {
    let groups = groups();
    let mut rigs = [port(&groups, 1, &unit()), port(&groups, 2, &unit())];
    let done = set(&mut rigs[0], &[1, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(done.status(), status::GOOD);
    assert_eq!(groups.state(1), Some(AccessState::ActiveNonOptimized));
    assert_eq!(groups.state(2), Some(AccessState::ActiveOptimized));
    assert_eq!(ready(&mut rigs[0]), None, "it knows what it asked for");
    assert_eq!(ready(&mut rigs[1]), Some(Sense::ACCESS_STATE_CHANGED));
    assert_eq!(report(&mut rigs[1], 0)[5 + 4], 1, "by the command");
    for descriptors in [[0, 0, 0, 9], [0xf, 0, 0, 1], [0xe, 0, 0, 1]] {
        let refused = set(&mut rigs[0], &[&[2, 0, 0, 1][..], &descriptors].concat());
        assert_eq!(sense(&refused), Some(Sense::INVALID_PARAMETER));
    }
    assert_eq!(groups.state(1), Some(AccessState::ActiveNonOptimized));
    assert_eq!(sense(&set(&mut rigs[0], &[0, 0])), Some(Sense::PARAMETER_LENGTH));
    groups.set_support(1);
    assert_eq!(sense(&set(&mut rigs[0], &[0, 0, 0, 1])), Some(Sense::INVALID_OPCODE));
    assert_eq!(report(&mut rigs[0], 0).len(), 32, "it still reports");
}

/// An array may announce groups and refuse to report them.
#[test]
fn a_unit_refuses_to_report() {
    let mut unit = unit();
    unit.behavior.refused = vec![0xa3];
    let mut rig = port(&groups(), 1, &unit);
    assert_eq!(run(&mut rig, 0xc0, &[0x12, 0, 0, 0, 36], 36, &[]).data[5], 0x30);
    let refused = run(&mut rig, 0xc0, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64], 64, &[]);
    assert_eq!(sense(&refused), Some(Sense::INVALID_OPCODE));
}
