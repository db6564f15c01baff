//! Tests of the commands for port groups.

use iscsi_testkit::scsi::{AccessState, PortGroup, PortGroups, TargetPort};
use serde_json::Value;

use crate::support::{BLOCK, MIB, Rig, json_of, refuses, text_of};

/// Starts a unit of an array with three ports. The session uses port 1, in the preferred group 1. Ports 2 and 3
/// are in standby.
async fn start() -> (Rig, PortGroups) {
    let standby = PortGroup::new(2, [2, 3]).with_state(AccessState::Standby);
    let groups = PortGroups::new([PortGroup::new(1, [1]).preferred(), standby]);
    let port = TargetPort::new(groups.clone(), 1);
    let rig = Rig::start_with(BLOCK, MIB, |config| *config = config.clone().with_port(port)).await;
    (rig, groups)
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_the_port_of_the_session() {
    let (rig, groups) = start().await;
    groups.set_implicit_transition_time(30);
    let text = text_of(&["port-groups", &rig.url()]);
    let expected = "states change  implicit and explicit\n\
                    transition     up to 30 s\n\
                    this session   port 1 of group 1\n\
                    group 1        active/optimized, preferred: port 1\n\
                    group 2        standby: ports 2, 3\n";
    assert_eq!(text, expected);
    groups.refuse_extended_header();
    let object = json_of(&["port-groups", &rig.url()]);
    assert_eq!((&object["port"], &object["group"]), (&1.into(), &1.into()));
    assert_eq!(object["transition_seconds"], Value::Null);
    let standby = &object["groups"][1];
    assert_eq!((&standby["state"], &standby["preferred"]), (&"standby".into(), &false.into()));
    assert_eq!(standby["ports"], Value::Array(vec![2.into(), 3.into()]));
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_gets_another_state() {
    let (rig, groups) = start().await;
    let url = rig.url();
    let consent = ["the ways of all initiators to the unit", "--yes"];
    refuses(&["set-port-group", &url, "2", "active-non-optimized"], 2, "caller", &consent);
    assert_eq!(groups.state(2), Some(AccessState::Standby));
    let text = text_of(&["set-port-group", &url, "2", "active-non-optimized", "--yes"]);
    let line = "group 2        active/non-optimized: ports 2, 3; set by an initiator\n";
    assert!(text.ends_with(line), "{text}");
    assert_eq!(groups.state(2), Some(AccessState::ActiveNonOptimized));
    let parts = ["SET TARGET PORT GROUPS failed", "INVALID FIELD IN PARAMETER LIST"];
    refuses(&["set-port-group", &url, "9", "standby", "--yes"], 69, "target", &parts);
    groups.set_support(1);
    let parts = ["SET TARGET PORT GROUPS failed", "INVALID COMMAND OPERATION CODE"];
    refuses(&["set-port-group", &url, "2", "standby", "--yes"], 69, "target", &parts);
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_tell_nothing() {
    let rig = Rig::start(BLOCK, MIB).await;
    let text = text_of(&["port-groups", &rig.url()]);
    assert_eq!(text, "the unit has no target port groups: all ways to it are alike\n");
    let object = json_of(&["port-groups", &rig.url()]);
    assert_eq!((&object["support"], &object["groups"]), (&"none".into(), &Value::Null));

    let (rig, _groups) = start().await;
    rig.server.with(|target| {
        target.config_mut().units.get_mut(&0).unwrap().behavior.refused = vec![0xa3];
    });
    let parts = ["REPORT TARGET PORT GROUPS failed", "INVALID COMMAND OPERATION CODE"];
    refuses(&["port-groups", &rig.url()], 69, "target", &parts);
}
