//! Tests of the commands that read from targets and units.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use iscsi_testkit::config::{Chap, Portal, Redirect, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::{LunForm, Unit};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::{Value, json};

use crate::support::{
    BLOCK, MIB, Rig, TARGET, iscsi_util, json_of, object, program, refuses, stderr, stdout, text_of,
};

const OTHER: &str = "iqn.2026-01.org.example:other";

#[tokio::test(flavor = "multi_thread")]
async fn targets_are_listed_with_their_portals() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        let portal = |name: &str, addresses: &[&str]| Portal {
            name: name.to_owned(),
            addresses: addresses.iter().copied().map(str::to_owned).collect(),
        };
        config.discovery.targets = vec![
            portal(TARGET, &["10.0.0.5:3260,1", "[fd00::5]:3261,2"]),
            portal(OTHER, &["storage.example:3260,1"]),
        ];
    })
    .await;
    let text = text_of(&["discover", &rig.at("")]);
    assert_eq!(
        text,
        format!(
            "{TARGET}\n  iscsi://10.0.0.5:3260/{TARGET}  portal group 1\n  \
             iscsi://[fd00::5]:3261/{TARGET}  portal group 2\n{OTHER}\n  \
             iscsi://storage.example:3260/{OTHER}  portal group 1\n"
        )
    );
    // Only the portal of the URL is used. Its target and unit are ignored.
    let object = json_of(&["discover", &rig.url()]);
    let expected = json!([
        { "name": TARGET, "portals": [
            { "host": "10.0.0.5", "port": 3260, "portal_group_tag": 1 },
            { "host": "fd00::5", "port": 3261, "portal_group_tag": 2 },
        ], "urls": [
            format!("iscsi://10.0.0.5:3260/{TARGET}"),
            format!("iscsi://[fd00::5]:3261/{TARGET}"),
        ] },
        { "name": OTHER, "portals": [
            { "host": "storage.example", "port": 3260, "portal_group_tag": 1 },
        ], "urls": [format!("iscsi://storage.example:3260/{OTHER}")] },
    ]);
    assert_eq!(object["targets"], expected);
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_without_targets_says_so() {
    let rig = Rig::start_with(BLOCK, MIB, |config| config.discovery.nothing = true).await;
    assert_eq!(text_of(&["discover", &rig.at("")]), "no targets\n");
    assert_eq!(json_of(&["discover", &rig.at("")])["targets"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn units_are_listed_with_what_they_are() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        let mut unit = Unit::new(RamDisk::new(4096, 512));
        unit.product = "other disk".to_owned();
        config.units.insert(300, unit);
    })
    .await;
    let text = text_of(&["luns", &rig.at(&format!("/{TARGET}"))]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "0    disk  TESTKIT  RAM disk    1 MiB in blocks of 512",
            "300  disk  TESTKIT  other disk  2 MiB in blocks of 4096",
        ]
    );
    let object = json_of(&["luns", &rig.at(&format!("/{TARGET}"))]);
    let units = object["units"].as_array().unwrap();
    assert_eq!(units.len(), 2);
    assert_eq!((&units[1]["lun"], &units[1]["capacity_bytes"]), (&300.into(), &(2 * MIB).into()));
    assert_eq!(units[1]["address"], "412c000000000000");
    assert_eq!((&units[0]["vendor"], &units[0]["type"]), (&"TESTKIT".into(), &"disk".into()));
    assert_eq!((&units[0]["block_size_bytes"], &units[0]["error"]), (&BLOCK.into(), &Value::Null));
    rig.assert_logged_out();
}

/// All commands find a unit by the number that `luns` lists, whatever format of LUNs the target uses.
#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_found_by_its_number() {
    for (form, number) in [(LunForm::AllFlat, 1), (LunForm::Bus, 300)] {
        let rig = Rig::start_with(BLOCK, MIB, |config| {
            let unit = config.units.remove(&0).unwrap();
            config.units.insert(number, unit);
            config.lun_form = form;
        })
        .await;
        let url = rig.at(&format!("/{TARGET}/{number}"));
        let listed = json_of(&["luns", &rig.at(&format!("/{TARGET}"))]);
        assert_eq!(listed["units"][0]["capacity_bytes"], MIB);
        assert_eq!(json_of(&["capacity", &url])["capacity_bytes"], MIB);
        assert_eq!(json_of(&["extents", &url])["extents"][0]["length"], MIB);
        assert_eq!(json_of(&["inquiry", &url])["pages"][0]["fields"]["product"], "RAM disk");
        assert_eq!(json_of(&["inquiry", &url, "--page", "80"])["pages"][0]["page"], "80");
        assert_eq!(json_of(&["reservations", &url])["reservation"], Value::Null);
        assert_eq!(json_of(&["port-groups", &url])["support"], "none");
        assert_eq!(
            json_of(&["register", &url, "--key", "0xa", "--yes"])["key"],
            "0x000000000000000a"
        );
        let missing = rig.at(&format!("/{TARGET}/{}", number + 1));
        let told = format!("no logical unit {}", number + 1);
        for command in ["capacity", "inquiry", "reservations", "port-groups"] {
            refuses(&[command, &missing], 69, "caller", &[&told]);
        }
        rig.assert_logged_out();
    }
}

/// If one unit of a target fails, its error is in its row, and the other units are listed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_unit_stands_beside_it() {
    const READ_CAPACITY_10: u8 = 0x25;
    const SERVICE_ACTION_IN_16: u8 = 0x9e;
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        let mut unit = Unit::new(RamDisk::new(BLOCK, 8));
        unit.behavior.refused = vec![READ_CAPACITY_10, SERVICE_ACTION_IN_16];
        config.units.insert(1, unit);
    })
    .await;
    let object = json_of(&["luns", &rig.url()]);
    let units = &object["units"];
    assert_eq!((&units[0]["capacity_bytes"], &units[0]["error"]), (&MIB.into(), &Value::Null));
    assert_eq!(
        (&units[1]["capacity_bytes"], &units[1]["product"]),
        (&Value::Null, &"RAM disk".into())
    );
    assert!(units[1]["error"].as_str().unwrap().contains("READ CAPACITY"), "{units}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_decoded() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        let unit = config.units.get_mut(&0).unwrap();
        unit.serial = "0001".to_owned();
        unit.max_transfer_blocks = 2048;
        let naa = [1, 3, 0, 8, 0x30, 0, 0, 0, 0, 0, 0, 1];
        let port = [1, 0x14, 0, 4, 0, 0, 0, 1];
        unit.behavior.designators = Some([&naa[..], &port].concat());
    })
    .await;
    let url = rig.url();
    let text = text_of(&["inquiry", &url]);
    assert!(text.starts_with("standard INQUIRY data\n  device type             disk\n"), "{text}");
    assert!(!text.contains("page"), "{text}");

    let field = |page: &str, name: &str| {
        let object = json_of(&["inquiry", &url, "--page", page]);
        assert_eq!(object["pages"].as_array().unwrap().len(), 1);
        object["pages"][0]["fields"][name].clone()
    };
    assert!(field("0", "pages").as_array().unwrap().contains(&json!("b2")));
    assert_eq!(field("80", "serial_number"), "0001");
    assert_eq!(field("0x83", "logical_unit_name"), "naa.3000000000000001");
    assert_eq!(field("83", "designators")[0]["association"], "logical unit");
    let names = text_of(&["inquiry", &url, "--page", "83"]);
    assert_eq!(
        names,
        "page 83: device identification\n\
         \x20 logical unit name  naa.3000000000000001\n\
         \x20 designators        naa.3000000000000001 (NAA, logical unit)\n\
         \x20                    port 1 (relative target port, target port)\n"
    );
    assert_eq!(field("B0", "maximum_transfer_length"), 2048);
    assert!(field("b1", "medium_rotation_rate").is_number());
    assert_eq!(field("b2", "unmap"), true);
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_are_those_that_the_unit_lists() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.units.get_mut(&0).unwrap().behavior.refused_pages = vec![0xb1];
    })
    .await;
    let listed = json_of(&["inquiry", &rig.url(), "--page", "0"]);
    let listed = listed["pages"][0]["fields"]["pages"].as_array().unwrap().clone();
    let object = json_of(&["inquiry", &rig.url(), "--all"]);
    let pages = object["pages"].as_array().unwrap();
    assert_eq!(
        (&pages[0]["page"], &pages[0]["fields"]["product"]),
        (&Value::Null, &"RAM disk".into())
    );
    let told: Vec<_> = pages[1..].iter().map(|page| page["page"].clone()).collect();
    assert_eq!(told, listed);
    let missing: Vec<_> = pages.iter().filter(|page| !page["error"].is_null()).collect();
    assert_eq!(missing.len(), 1, "{object}");
    assert_eq!(missing[0]["page"], "b1");
    let text = text_of(&["inquiry", &rig.url(), "--all"]);
    assert!(text.contains("\npage b0: block limits\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_capacity_is_told() {
    let rig = Rig::start_with(BLOCK, 3 * MIB, |config| {
        config.units.get_mut(&0).unwrap().physical_block_exponent = 3;
    })
    .await;
    let text = text_of(&["capacity", &rig.url()]);
    assert!(text.starts_with("capacity         3 MiB (3145728 bytes)\n"), "{text}");
    let object = json_of(&["capacity", &rig.url()]);
    assert_eq!((&object["capacity_bytes"], &object["blocks"]), (&(3 * MIB).into(), &6144.into()));
    assert_eq!(
        (&object["block_size_bytes"], &object["physical_block_size_bytes"]),
        (&512.into(), &4096.into())
    );
    assert_eq!(
        (&object["provisioning"], &object["write_protected"]),
        (&"thin".into(), &false.into())
    );
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn extents_are_told_without_a_gap() {
    let rig = Rig::start(BLOCK, 8 * MIB).await;
    rig.disk.write(MIB, &[7; 1 << 20]);
    let object = json_of(&["extents", &rig.url()]);
    let expected = json!([
        { "offset": 0, "length": MIB, "state": "deallocated" },
        { "offset": MIB, "length": MIB, "state": "data" },
        { "offset": 2 * MIB, "length": 6 * MIB, "state": "deallocated" },
    ]);
    assert_eq!(object["extents"], expected);
    assert_eq!(object["bytes"]["data"], MIB);

    let text = text_of(&["extents", &rig.url(), "--offset", "1536K", "--length", "1M"]);
    assert_eq!(
        text,
        "1572864  524288  data\n2097152  524288  deallocated\n\
         total: 512 KiB data, 512 KiB deallocated\n"
    );
    rig.assert_logged_out();
}

/// If there are more extents than requested, the first ones are printed, with the offset at which the rest
/// begins.
#[tokio::test(flavor = "multi_thread")]
async fn more_extents_than_are_asked_for_are_no_whole_answer() {
    let rig = Rig::start(BLOCK, 8 * MIB).await;
    rig.disk.write(MIB, &[7; 1 << 20]);
    let output = program(&["extents", &rig.url(), "--max", "2", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let object = object(&output);
    assert_eq!((&object["complete"], &object["kind"]), (&false.into(), &"caller".into()));
    assert_eq!(object["extents"].as_array().unwrap().len(), 2);
    let error = "the unit reports more than 2 extents: --offset 2097152 shows those behind them, and --max N shows more together";
    assert_eq!(object["error"], error);
    let rest = json_of(&["extents", &rig.url(), "--offset", "2097152", "--max", "2"]);
    assert_eq!(
        rest["extents"],
        json!([{ "offset": 2 * MIB, "length": 6 * MIB, "state": "deallocated" }])
    );
    // Makes the unit report one block per response.
    rig.server.with(|target| {
        let unit = target.config_mut().units.get_mut(&0).unwrap();
        unit.behavior.lba_status_blocks = Some(1);
    });
    let output = program(&["extents", &rig.url(), "--max", "100"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "0  51200  deallocated\ntotal: 50 KiB deallocated\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_does_not_tell_its_extents_is_all_data() {
    let rig =
        Rig::start_with(BLOCK, MIB, |config| config.units.get_mut(&0).unwrap().thin = false).await;
    let text = text_of(&["extents", &rig.url()]);
    assert_eq!(
        text,
        "0  1048576  data\ntotal: 1 MiB data\n\
         the unit does not say which of its blocks hold data\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_comes_from_the_environment() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.chap = Some(Chap::new("me", "the right hunter"));
    })
    .await;
    let mut command = program(&["capacity", &rig.url()]);
    command.env("LIBISCSI_CHAP_USERNAME", "me").env("LIBISCSI_CHAP_PASSWORD", "the right hunter");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Commands take passwords from files. There is a command of each kind: with a session, a disk, a discovery
/// session, and a volume.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_come_from_files() {
    let rig = async || {
        Rig::start_with(BLOCK, MIB, |config| {
            let mut chap = Chap::new("me", "the right hunter").mutual("you", "the other hunter");
            chap.discovery = true;
            config.chap = Some(chap);
            config.units.get_mut(&0).unwrap().serial = config.names[0].clone();
        })
        .await
    };
    let (rig, other) = (rig().await, rig().await);
    let file = |name: &str, content: &str| {
        let path = std::env::temp_dir().join(format!("iscsi-util-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (own, of_target) =
        (file("own", "the right hunter\n"), file("target", "the other hunter\n"));
    let [url, other] = [rig.url(), other.url()].map(|url| url.replace("iscsi://", "iscsi://me@"));
    let options = ["--password-file", &own, "--target-password-file", &of_target];
    for command in [
        &["capacity", &url][..],
        &["discover", &url],
        &["perf", "--seconds", "1", &url],
        &["discard", "--offset", "0", "--length", "512", "--yes", &url],
    ] {
        text_of(&[command, &options].concat());
        let mut logged = program(&[command, &options].concat());
        let said = stderr(&logged.env("RUST_LOG", "trace").output().unwrap());
        assert!(said.contains("session") && !said.contains("hunter"), "{said}");
    }
    // The units of the two targets have the same serial number.
    let output = iscsi_util(&[&["volume", "create", &url, &other][..], &options].concat());
    assert!(stderr(&output).contains("the same unit"), "{}", stderr(&output));
    let same = ["capacity", &url, "--password-file", &own, "--target-password-file", &own];
    refuses(&same, 77, "caller", &["same secret"]);
    let missing = ["capacity", &url, "--password-file", "/nowhere"];
    refuses(&missing, 1, "caller", &["password file /nowhere", "check the path"]);
    refuses(&["capacity", &rig.url(), "--password-file", &own], 2, "caller", &["needs a user"]);
    [own, of_target].iter().for_each(|path| fs::remove_file(path).unwrap());
}

/// If the target's password in the environment is not UTF-8, the target must prove that it knows the password
/// nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_the_target_is_any_bytes_in_the_environment() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.chap = Some(Chap::new("me", "the right hunter"));
    })
    .await;
    let mut command = program(&["capacity", &rig.url()]);
    command.env("LIBISCSI_CHAP_USERNAME", "me").env("LIBISCSI_CHAP_PASSWORD", "the right hunter");
    command.env("LIBISCSI_CHAP_TARGET_PASSWORD", OsStr::from_bytes(&[0x9c, 0xff, 1]));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(77), "{}", stderr(&output));
    command.env("LIBISCSI_CHAP_USERNAME", OsStr::from_bytes(b"m\xe4"));
    let text = stderr(&command.output().unwrap());
    assert!(text.contains("LIBISCSI_CHAP_USERNAME is not UTF-8"), "{text}");
}

/// Starts a portal that redirects its logins to a portal at another host.
async fn redirected() -> (Rig, Server) {
    let to = Server::start_at(
        ("127.0.0.2", 0),
        Target::new(TargetConfig::new(TARGET, RamDisk::new(BLOCK, 2048))),
        Duration::ZERO,
    );
    let to = to.await.unwrap();
    let address = to.address().to_string();
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.login.redirect =
            Some(Redirect { address, permanent: false, after_authentication: false });
    })
    .await;
    (rig, to)
}

/// The report names the portals that the sessions were redirected to, for a session, a disk and a volume.
#[tokio::test(flavor = "multi_thread")]
async fn the_portals_of_the_sessions_are_told() {
    let (rig, to) = redirected().await;
    let url = rig.at(&format!("/{TARGET}/0?redirects=any"));
    let there = json!([to.address().to_string()]);
    for subcommand in [&["capacity"][..], &["perf", "--seconds", "1"]] {
        let object = json_of(&[subcommand, &[&url]].concat());
        assert_eq!(object["portals"], there, "{subcommand:?}");
    }
    assert_eq!(json_of(&["discover", &rig.at("?redirects=any")])["portals"], json!([]));
    let plain = Rig::start(BLOCK, MIB).await;
    let portal = plain.server.address().to_string();
    assert_eq!(json_of(&["luns", &plain.url()])["portals"], json!([portal]));
    let parts = ["127.0.0.1", &to.address().to_string(), "redirects=any"];
    refuses(&["capacity", &rig.url()], 77, "target", &parts);
}
