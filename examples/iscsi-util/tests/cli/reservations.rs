//! Tests of the registrations with a unit, and of the commands that change them.

use iscsi_testkit::scsi::Reservations;
use serde_json::Value;

use crate::support::{BLOCK, MIB, Rig, iscsi_util, json_of, refuses, stderr, text_of};

const NAME: [&str; 2] = ["--initiator-name", "iqn.2026-01.org.example:host"];
const KEY: &str = "0x000000000000000a";

fn reservations(rig: &Rig) -> Reservations {
    rig.server.with(|target| target.config_mut().units[&0].reservations.clone())
}

/// Returns the arguments of a command that changes the unit, with the user's consent.
fn agreed<'a>(command: &'a str, url: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    [&[command, url, "--key", "0xa", "--yes"], &NAME[..], options].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_reserved_and_given_back() {
    let rig = Rig::start(BLOCK, MIB).await;
    let (url, reservations) = (rig.url(), reservations(&rig));
    let object = json_of(&["reservations", &url]);
    assert_eq!((&object["reservation"], &object["generation"]), (&Value::Null, &0.into()));
    assert_eq!(object["registrations"], Value::Array(Vec::new()));
    let text = text_of(&["reservations", &url]);
    assert!(text.starts_with("reservation    none\n") && text.ends_with("registered     none\n"));

    assert_eq!(
        text_of(&agreed("register", &url, &["--persist"])),
        format!("registered by the key {KEY}\n")
    );
    let kind = ["--type", "exclusive-access-registrants-only"];
    let text = text_of(&agreed("reserve", &url, &kind));
    assert_eq!(text, "reserved: exclusive access, registrants only\n");
    assert_eq!(reservations.holder(), Some((6, 0xa)));

    let object = json_of(&["reservations", &url]);
    assert_eq!(object["reservation"]["key"], KEY);
    assert_eq!(object["reservation"]["type"], "exclusive access, registrants only");
    let registration = &object["registrations"][0];
    assert_eq!((&registration["key"], &registration["holds"]), (&KEY.into(), &true.into()));
    assert_eq!(registration["initiator"], "iqn.2026-01.org.example:host");
    assert_eq!(registration["isid"], "8075746c0000", "the same for every run");
    assert_eq!(object["types"].as_array().unwrap().len(), 6);
    assert_eq!(object["persists_through_power_loss"], true);
    let text = text_of(&["reservations", &url]);
    let lines = [
        "reservation    exclusive access, registrants only, held by 0x000000000000000a\n",
        "generation     1\n",
        "loss of power  changes nothing\n",
        "registered     0x000000000000000a  iqn.2026-01.org.example:host,i,0x8075746c0000  port 1, holds it\n",
    ];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");

    let object = json_of(&agreed("release", &url, &kind));
    assert_eq!((&object["keys"][0], reservations.holder()), (&KEY.into(), None));
    let end = [&["register", &url, "--key", "0x0", "--yes"], &NAME[..]].concat();
    assert_eq!(text_of(&end), "no longer registered\n");
    assert!(reservations.keys().is_empty());
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_fenced_off() {
    let rig = Rig::start(BLOCK, MIB).await;
    let (url, reservations) = (rig.url(), reservations(&rig));
    reservations.register_by_another(0xb);
    assert!(reservations.reserve_by_another(1));
    let preempt = ["--type", "write-exclusive-registrants-only", "--victim", "0xb"];
    let conflict = ["RESERVATION CONFLICT", "not registered by that key", "reservations shows"];
    refuses(&agreed("preempt", &url, &preempt), 69, "caller", &conflict);
    text_of(&agreed("register", &url, &[]));
    refuses(&agreed("reserve", &url, &["--type", "write-exclusive"]), 69, "caller", &conflict);
    let object = json_of(&agreed("preempt", &url, &[&preempt[..], &["--abort"]].concat()));
    assert_eq!(object["keys"], Value::Array(vec![KEY.into()]));
    assert_eq!(reservations.holder(), Some((5, 0xa)));
    refuses(&agreed("preempt", &url, &preempt), 69, "caller", &conflict);

    let text = text_of(&agreed("clear", &url, &[]));
    assert_eq!(text, "no reservation and no registration is left\n");
    assert_eq!((reservations.keys().len(), reservations.holder()), (0, None));
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_isid_is_another_initiator_port() {
    let rig = Rig::start(BLOCK, MIB).await;
    let (url, reservations) = (rig.url(), reservations(&rig));
    text_of(&agreed("register", &url, &[]));
    text_of(&agreed("register", &url, &["--isid", "0a1b2c"]));
    let isids: Vec<_> = reservations.registrations().iter().map(|it| it.registrant.isid).collect();
    assert_eq!(isids, [0x8075_746c_0000, 0x800a_1b2c_0000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_consent_no_access_changes() {
    let rig = Rig::start(BLOCK, MIB).await;
    let (url, consent) = (rig.url(), ["which initiators may use the unit", "--yes"]);
    let kind = ["--type", "write-exclusive"];
    for (command, options) in [
        ("register", vec![]),
        ("reserve", kind.to_vec()),
        ("release", kind.to_vec()),
        ("preempt", [&kind[..], &["--victim", "0xb"]].concat()),
        ("clear", vec![]),
    ] {
        let arguments = [&[command, &url, "--key", "0xa"], &options[..]].concat();
        refuses(&arguments, 2, "caller", &consent);
    }
    assert_eq!(rig.server.with(|target| target.commands().len()), 0, "it asked nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_without_reservations_says_so() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.units.get_mut(&0).unwrap().behavior.refused = vec![0x5e, 0x5f];
    })
    .await;
    let url = rig.url();
    let parts = ["PERSISTENT RESERVE IN: READ KEYS failed", "INVALID COMMAND OPERATION CODE"];
    refuses(&["reservations", &url], 69, "target", &parts);
    let output = iscsi_util(&["register", &url, "--key", "1a", "--yes"]);
    assert!(
        stderr(&output).contains("1 to 16 hexadecimal digits behind 0x"),
        "{}",
        stderr(&output)
    );
}
