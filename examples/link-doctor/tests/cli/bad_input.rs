//! Tests of wrong inputs. For each: one sentence that says what to do, and an exit status other than zero.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::time::Duration;

use iscsi_testkit::config::Chap;
use tokio::net::TcpListener;

use crate::support::{
    MIB, TARGET, assert_untouched, complains, link_doctor, object, start, start_with, stderr,
    stdout, succeeds,
};

/// Runs the program. Checks that it fails with this status, that its message contains `parts`, and that standard
/// output is empty.
#[track_caller]
fn refuses(status: i32, arguments: &[&str], parts: &[&str]) {
    let output = link_doctor(arguments);
    complains(&output, status, parts);
    assert_eq!(stdout(&output), "");
}

/// Checks that the command line was refused, and that the message contains `parts`.
fn misused(output: &Output, parts: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(stdout(output), "");
    for part in parts {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
}

#[test]
fn a_volume_is_not_one_link() {
    let output = link_doctor(&["volume:/nowhere/volume.toml"]);
    complains(&output, 2, &["a volume has a link for each of its units", "name the URL of one"]);
    assert_eq!(stdout(&output), "");
}

#[test]
fn command_lines() {
    let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    for (options, part) in [
        (["--bandwidth", "fast"], "write a number with a unit: bits such as 100mbit"),
        (["--bandwidth", "9999999gbit"], "a link has a rate from 1kbit to 1000gbit"),
        (["--bandwidth", "-5mbit"], "a link has a rate"),
        (["--tune", "faster"], "there are auto, static, autotune, thesis and off"),
        (["--seconds", "0"], "0 is not in 1..=3600"),
        (["--seconds", "99999999999999999999"], "--seconds"),
        (["--depth", "0"], "write auto, or a number from 1 to 256"),
        (["--no-such", "x"], "unexpected argument '--no-such'"),
    ] {
        let attached = format!("{}={}", options[0], options[1]);
        misused(&link_doctor(&[&url, &attached]), &[part]);
    }
    misused(&link_doctor(&[]), &["<URL>"]);
}

#[test]
fn urls_and_names() {
    for (url, part) in [
        ("iscsi://", "names no host"),
        ("iscsi://127.0.0.1", "names no target"),
        ("iscsi://127.0.0.1/disk/0", "disk"),
        ("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/x", "no logical unit number"),
        ("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/0?fast=1", "no URL option \"fast\""),
        ("http://me:hunter@127.0.0.1/", "no iSCSI URL"),
        ("", "no iSCSI URL"),
    ] {
        refuses(2, &[url], &[part]);
    }
    let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    refuses(2, &[&url, "--initiator-name", "host"], &["'host'", "choose another name"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    drop(listener);
    let nobody = format!("nothing listens at {portal}");
    refuses(75, &[&format!("iscsi://{portal}/{TARGET}/0")], &[&nobody, "check the port"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_logins_for_now_is_waited_for_if_that_is_asked_for() {
    let rig = start_with(MIB, Duration::ZERO, |config| {
        (config.login.refuse, config.login.refuse_times) = (Some((3, 1)), 2);
    })
    .await;
    refuses(75, &[&rig.url()], &["try again"]);
    let output = link_doctor(&[&rig.url(), "--seconds", "1", "--wait", "1h"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("not there yet"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_accepts_and_stays_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    let url = format!("iscsi://{portal}/{TARGET}/0?login_timeout=1");
    refuses(75, &[&url], &["did not answer in time"]);
}

/// With --json, an error without any measurement is printed as a JSON object as well.
#[tokio::test(flavor = "multi_thread")]
async fn programs_are_told_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("iscsi://{portal}/{TARGET}/0");
    for (arguments, status, kind, part) in [
        (&[&*url, "--json"][..], 75, "network", "nothing listens"),
        (&["iscsi://", "--json"], 2, "caller", "names no host"),
        (&[&url, "--json", "--depth=0"], 2, "caller", "write auto, or a number"),
    ] {
        let output = link_doctor(arguments);
        assert_eq!(output.status.code(), Some(status));
        let failure = object(&output);
        assert_eq!((&failure["complete"], &failure["kind"]), (&false.into(), &kind.into()));
        assert!(failure["error"].as_str().unwrap().contains(part), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password() {
    let rig = start_with(MIB, Duration::ZERO, |config| {
        config.chap = Some(Chap::new("me", "the right hunter"));
    })
    .await;
    let url = format!("iscsi://me:a%20wrong%20hunter@{}/{TARGET}/0", rig.server.address());
    refuses(77, &[&url], &["\"me\" or the password", "check both"]);
    refuses(77, &[&rig.url()], &["wants a user name and a password"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_come_from_files() {
    let rig = start_with(MIB, Duration::ZERO, |config| {
        config.chap = Some(Chap::new("me", "the right hunter").mutual("you", "the other hunter"));
    })
    .await;
    let file = |name: &str, content: &str| {
        let path = std::env::temp_dir().join(format!("link-doctor-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (own, of_target) =
        (file("own", "the right hunter\n"), file("target", "the other hunter\n"));
    let url = rig.at(&format!("/{TARGET}")).replace("iscsi://", "iscsi://me@");
    let with = |own: &str, of_target: &str| {
        link_doctor(&[&url, "--password-file", own, "--target-password-file", of_target])
    };
    succeeds(&with(&own, &of_target));
    complains(&with(&own, &own), 77, &["same secret"]);
    complains(&with("/nowhere", &of_target), 1, &["password file /nowhere", "check the path"]);
    let nobody = [&*rig.url(), "--password-file", &own];
    complains(&link_doctor(&nobody), 2, &["--password-file needs a user"]);
    [own, of_target].iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_and_a_unit_that_do_not_exist() {
    let rig = start(MIB).await;
    refuses(
        69,
        &[&rig.at("/iqn.2026-01.org.example:other/0")],
        &["no target iqn.2026-01.org.example:other"],
    );

    let output = link_doctor(&[&rig.at(&format!("/{TARGET}/7"))]);
    complains(&output, 69, &["no logical unit 7"]);
    assert!(stdout(&output).contains("round trip by ping"), "the link could be explained");
    assert_untouched(&rig);
}
