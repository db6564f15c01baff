//! Tests of target port groups and their states, byte by byte as in the figures of SPC-4.

use super::hex;
use iscsi_pdu::scsi::vpd::DeviceIdentification;
use iscsi_pdu::scsi::{
    AccessState, AdditionalSense, FormatError, SetTargetPortGroups, StandardInquiry, StateChange,
    SupportedStates, TargetPortGroupSupport, TargetPortGroups,
};

fn groups(text: &str) -> TargetPortGroups {
    TargetPortGroups::decode(&hex(text)).unwrap()
}

/// Two groups: a preferred one in active/optimized with two ports, and one in standby with one port.
const TWO_GROUPS: &str = "80 cf 0001 00 01 5a 02 0000 0001 0000 0002 \
                          02 07 0102 00 02 00 01 0000 0103";

/// SPC-4 §6.37: checks the length-only header, and the fields of a descriptor.
#[test]
fn groups_behind_the_header_of_length_alone() {
    let answer = groups(&format!("0000001c {TWO_GROUPS}"));
    assert_eq!(answer.implicit_transition_time, None);
    assert!(!answer.is_truncated());
    let [first, second] = answer.groups.as_slice() else { panic!("{answer:?}") };
    assert!(first.preferred && !second.preferred);
    assert_eq!(first.state, AccessState::ActiveOptimized);
    assert_eq!(second.state, AccessState::Standby);
    assert_eq!((first.id, second.id), (1, 0x102));
    assert_eq!((first.status, second.status), (StateChange::Explicit, StateChange::Implicit));
    assert_eq!((first.vendor_specific, second.vendor_specific), (0x5a, 0));
    assert_eq!((first.ports.as_slice(), second.ports.as_slice()), (&[1, 2][..], &[0x103][..]));
    assert_eq!((first.supported, second.supported), (SupportedStates(0xcf), SupportedStates(7)));
    assert_eq!(answer.group(0x102), Some(second));
    assert_eq!(answer.group(2), None);
    assert_eq!(answer.group_of_port(2), Some(first));
    assert_eq!(answer.group_of_port(3), None);
}

/// TPG-01: byte 4 shows which header the parameter data have, with or without groups.
#[test]
fn tpg_01_the_answer_tells_its_header() {
    let plain = groups(&format!("0000001c {TWO_GROUPS}"));
    let extended = groups(&format!("00000020 10 3c 0000 {TWO_GROUPS}"));
    assert_eq!(extended.implicit_transition_time, Some(60));
    assert_eq!(extended.groups, plain.groups);
    let silent = groups(&format!("00000020 10 00 0000 {TWO_GROUPS}"));
    assert_eq!(silent.implicit_transition_time, None, "zero is no time");

    for none in ["00000000", "00000004 10 00 0000"] {
        let none = groups(none);
        assert_eq!(none.groups, []);
        assert!(!none.is_truncated());
    }
    assert_eq!(groups("00000004 10 05 0000").implicit_transition_time, Some(5));
}

#[test]
fn a_group_without_ports() {
    let answer = groups("00000010 03 08 0007 00 00 00 00  01 03 0008 00 00 00 00");
    let [first, second] = answer.groups.as_slice() else { panic!("{answer:?}") };
    assert_eq!((first.id, first.state, first.ports.len()), (7, AccessState::Unavailable, 0));
    assert_eq!((second.id, second.state), (8, AccessState::ActiveNonOptimized));
    assert!(!answer.is_truncated());
}

/// TPG-02: wherever the allocation length cuts the data, the groups before the cut are decoded, and the
/// decoder reports the length that the whole data need.
#[test]
fn tpg_02_groups_that_are_cut_are_left_out() {
    let whole = hex(&format!("0000001c {TWO_GROUPS}"));
    for len in 4..=whole.len() {
        let answer = TargetPortGroups::decode(&whole[..len]).unwrap();
        let expected = if len < 20 { 0 } else { 1 + usize::from(len == 32) };
        assert_eq!(answer.groups.len(), expected, "{len} bytes");
        assert_eq!(answer.is_truncated(), len < 32, "{len} bytes");
        assert_eq!(answer.allocation_length(), 32);
    }
    let error = TargetPortGroups::decode(&whole[..3]).unwrap_err();
    assert!(matches!(error, FormatError::TooShort { len: 3, needed: 4, .. }), "{error}");
}

/// TPG-02: RETURN DATA LENGTH ends the list of groups even if it is too small. A group whose number of ports is
/// too large is omitted.
#[test]
fn tpg_02_no_length_is_trusted() {
    let short = groups(&format!("00000010 {TWO_GROUPS}"));
    assert_eq!(short.groups.len(), 1, "what lies behind the length is no group");
    assert!(!short.is_truncated());
    let ports = groups("0000000c 00 01 0001 00 00 00 ff 0000 0001");
    assert_eq!(ports.groups, []);
    assert!(ports.is_truncated());
    let long = groups("ffffffff 00 01 0001 00 00 00 01 0000 0001");
    assert_eq!(long.groups.len(), 1);
    assert!(long.is_truncated());
    assert_eq!(long.allocation_length(), u32::MAX);
}

/// SPC-4 §6.37: checks the code, the name and the bit of each access state, and whether a port in this state
/// serves reads and writes.
#[test]
fn states() {
    for (code, state, words, bit, active) in [
        (0x0, AccessState::ActiveOptimized, "active/optimized", 0x01, true),
        (0x1, AccessState::ActiveNonOptimized, "active/non-optimized", 0x02, true),
        (0x2, AccessState::Standby, "standby", 0x04, false),
        (0x3, AccessState::Unavailable, "unavailable", 0x08, false),
        (0x4, AccessState::LogicalBlockDependent, "logical block dependent", 0x10, true),
        (0x5, AccessState::Reserved(5), "reserved access state 0x5", 0x00, false),
        (0xd, AccessState::Reserved(13), "reserved access state 0xd", 0x00, false),
        (0xe, AccessState::Offline, "offline", 0x40, false),
        (0xf, AccessState::Transitioning, "transitioning", 0x80, false),
    ] {
        assert_eq!(AccessState::from_code(code), state);
        assert_eq!(AccessState::from_code(code | 0xf0), state, "the high bits are others'");
        assert_eq!((state.code(), state.is_active()), (code, active), "{state}");
        assert_eq!(state.to_string(), words);
        assert_eq!(SupportedStates(bit).contains(state), bit != 0);
        assert!(!SupportedStates(!bit).contains(state), "{state}");
    }
}

/// SPC-4 §6.45: checks the parameter list of SET TARGET PORT GROUPS, and the states that cannot be requested
/// for a group.
#[test]
fn tpg_03_states_that_are_asked_for() {
    let mut list = SetTargetPortGroups::new();
    assert_eq!((list.parameter_list_length(), list.encode()[..].to_vec()), (4, hex("00000000")));
    list.set_group(1, AccessState::ActiveOptimized).unwrap();
    list.set_group(0x102, AccessState::ActiveNonOptimized).unwrap();
    list.set_group(3, AccessState::Standby).unwrap();
    list.set_group(4, AccessState::Unavailable).unwrap();
    list.set_port_offline(0x205).unwrap();
    let bytes = "00000000 00 00 0001 01 00 0102 02 00 0003 03 00 0004 0e 00 0205";
    assert_eq!(list.encode()[..], hex(bytes)[..]);
    assert_eq!(list.parameter_list_length(), 24);
    for state in [
        AccessState::LogicalBlockDependent,
        AccessState::Offline,
        AccessState::Transitioning,
        AccessState::Reserved(7),
    ] {
        let error = list.set_group(1, state).unwrap_err();
        assert!(matches!(error, FormatError::Field { .. }), "{error}");
    }
    assert_eq!(list.parameter_list_length(), 24, "what is refused is not in the list");
}

/// TPG-04: port and group are taken from the first whole designator that names the port. Designators of the
/// unit or the target, and designators of a wrong length, are ignored.
#[test]
fn tpg_04_group_and_port_of_the_session() {
    let identification = |designators: &str| {
        let body = hex(designators);
        let mut page = vec![0, 0x83, 0, u8::try_from(body.len()).unwrap()];
        page.extend(body);
        let page = DeviceIdentification::decode(&page).unwrap();
        (page.relative_target_port(), page.target_port_group())
    };
    let unit = "01 03 0008 5000c500a1b2c3d4";
    let both = format!("{unit} 51 94 0004 00000102 51 95 0004 00000007");
    assert_eq!(identification(&both), (Some(0x102), Some(7)));
    assert_eq!(identification(unit), (None, None));
    assert_eq!(identification("01 14 0004 ffff0003"), (Some(3), None), "two bytes are reserved");
    assert_eq!(identification("01 04 0004 00000003 01 25 0004 00000007"), (None, None));
    assert_eq!(identification("01 14 0002 0003 01 15 0005 0000000007"), (None, None));
    let second = identification("01 15 0000 01 15 0004 00000007 01 15 0004 00000008");
    assert_eq!(second, (None, Some(7)), "the first whole one");
}

/// SPC-4 §6.6.2: checks TPGS of standard INQUIRY data.
#[test]
fn who_changes_states() {
    for (byte, support, words, [any, implicit, explicit]) in [
        ("0f", TargetPortGroupSupport::None, "none", [false; 3]),
        ("10", TargetPortGroupSupport::Implicit, "implicit", [true, true, false]),
        ("20", TargetPortGroupSupport::Explicit, "explicit", [true, false, true]),
        ("ff", TargetPortGroupSupport::Both, "implicit and explicit", [true; 3]),
    ] {
        let inquiry = StandardInquiry::decode(&hex(&format!("00 00 06 02 1f {byte}"))).unwrap();
        assert_eq!(inquiry.target_port_group_support, support);
        assert_eq!(support.to_string(), words);
        assert_eq!((support.is_supported(), support.is_implicit()), (any, implicit));
        assert_eq!(support.is_explicit(), explicit);
    }
}

/// SPC-4 Annex F: checks the codes with which units report states, reservations and changes.
#[test]
fn reasons_have_their_names() {
    for (reason, words) in [
        (
            AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION,
            "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION (04/0A)",
        ),
        (
            AdditionalSense::TARGET_PORT_IN_STANDBY_STATE,
            "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE (04/0B)",
        ),
        (
            AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE,
            "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE (04/0C)",
        ),
        (AdditionalSense::LOGICAL_UNIT_OFFLINE, "LOGICAL UNIT NOT READY, OFFLINE (04/12)"),
        (AdditionalSense::RESERVATIONS_PREEMPTED, "RESERVATIONS PREEMPTED (2A/03)"),
        (AdditionalSense::RESERVATIONS_RELEASED, "RESERVATIONS RELEASED (2A/04)"),
        (AdditionalSense::REGISTRATIONS_PREEMPTED, "REGISTRATIONS PREEMPTED (2A/05)"),
        (
            AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED,
            "ASYMMETRIC ACCESS STATE CHANGED (2A/06)",
        ),
        (
            AdditionalSense::IMPLICIT_TRANSITION_FAILED,
            "IMPLICIT ASYMMETRIC ACCESS STATE TRANSITION FAILED (2A/07)",
        ),
        (AdditionalSense::CAPACITY_DATA_HAS_CHANGED, "CAPACITY DATA HAS CHANGED (2A/09)"),
        (AdditionalSense::INQUIRY_DATA_HAS_CHANGED, "INQUIRY DATA HAS CHANGED (3F/03)"),
        (AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED, "REPORTED LUNS DATA HAS CHANGED (3F/0E)"),
    ] {
        assert_eq!(reason.to_string(), words);
    }
}
