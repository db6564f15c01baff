//! Tests of the remarks besides the findings: the path MTU, the offloads of the interface.

use iscsi_tuner::{Activity, Interface};

use crate::Case;

pub(crate) fn interface(mtu: u32, offload: Option<bool>) -> Interface {
    let mut interface = Interface::default();
    interface.name = "eth7".to_owned();
    interface.mtu = Some(mtu);
    let own = &mut interface.offload;
    own.tcp_segmentation = offload;
    own.generic_segmentation = offload;
    own.generic_receive = offload;
    interface
}

/// Returns the value and the reason of a remark; empty if there is none.
fn remark(case: &Case, name: &str) -> (String, String) {
    let remarks = case.diagnose().remarks;
    let row = remarks.into_iter().find(|row| row.name == name);
    row.map(|row| (row.value, row.reason)).unwrap_or_default()
}

#[test]
fn the_path_mtu_is_remarked_on() {
    let mut case = Case::on("100mbit", Activity::default());
    for (path, own, part) in [
        (1400, 1500, "less than the 1500 of this end: a tunnel on the way?"),
        (1400, 9000, "less than the 9000 of this end"),
        (1280, 1280, "as long as"),
        (1500, 1500, "as long as"),
        (1500, 9000, "this end could send 9000: jumbo frames need every part of the path"),
        (9000, 9000, "as long as"),
    ] {
        case.measurement.path_mtu = Some(path);
        case.interface = Some(interface(own, None));
        let (value, reason) = remark(&case, "path MTU");
        assert_eq!(value, format!("{path} bytes"));
        assert!(reason.contains(part), "{path} of {own}: {reason}");
    }
    case.interface = None;
    assert!(remark(&case, "path MTU").1.contains("as long as"));
    case.measurement.path_mtu = None;
    assert_eq!(case.diagnose().remarks, []);
}

#[test]
fn offloads_are_remarked_on() {
    let mut case = Case::on("100mbit", Activity::default());
    case.interface = Some(interface(1500, Some(true)));
    let (value, reason) = remark(&case, "offloads");
    assert_eq!(value, "tso gso gro");
    assert!(reason.contains("ethtool -K eth7 tso off gso off gro off"), "{reason}");

    case.interface.as_mut().unwrap().offload.tcp_segmentation = Some(false);
    let (value, reason) = remark(&case, "offloads");
    assert_eq!(value, "gso gro");
    assert!(reason.ends_with("ethtool -K eth7 gso off gro off"), "{reason}");

    case.interface = Some(interface(1500, Some(false)));
    let (value, reason) = remark(&case, "offloads");
    assert_eq!(value, "none");
    assert!(reason.contains("work for this processor"), "{reason}");
}

#[test]
fn offloads_that_are_not_told_are_not_said_to_be_off() {
    let mut case = Case::on("100mbit", Activity::default());
    case.interface = Some(interface(1500, None));
    assert_eq!(remark(&case, "offloads").0, "unknown");
}
