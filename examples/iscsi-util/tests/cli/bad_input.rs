//! Tests of wrong inputs. For each: one sentence that says what to do, and an exit status other than zero.

use iscsi_testkit::config::Chap;
use tokio::net::TcpListener;

use crate::support::{BLOCK, MIB, Rig, TARGET, iscsi_util, object, refuses, stderr, stdout};

/// Each command, with its mandatory options.
const ALL: [&[&str]; 9] = [
    &["discover"],
    &["luns"],
    &["inquiry"],
    &["capacity"],
    &["extents"],
    &["discard", "--offset", "0", "--length", "512", "--yes"],
    &["ping"],
    &["perf"],
    &["perf", "--write", "--yes"],
];

/// The commands whose URL needs no unit.
const OF_TARGETS: [&str; 3] = ["discover", "luns", "ping"];

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    drop(listener);
    let nobody = format!("nothing listens at {portal}");
    let url = format!("iscsi://{portal}/{TARGET}/0");
    for subcommand in ALL {
        refuses(&[subcommand, &[&url]].concat(), 75, "network", &[&nobody, "check the port"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_logins_for_now_is_waited_for_if_that_is_asked_for() {
    for subcommand in [&["discover"][..], &["ping", "--count", "1"], &["capacity"]] {
        let rig = Rig::start_with(BLOCK, MIB, |config| {
            (config.login.refuse, config.login.refuse_times) = (Some((3, 1)), 4);
        })
        .await;
        let url = rig.url();
        refuses(&[subcommand, &[&url]].concat(), 75, "target", &["try again"]);
        let output = iscsi_util(&[subcommand, &[&url, "--wait", "1h"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("not there yet"), "{}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_and_units_that_do_not_exist() {
    let rig = Rig::start(BLOCK, MIB).await;
    let (other, none) =
        (rig.at("/iqn.2026-01.org.example:other/0"), rig.at(&format!("/{TARGET}/7")));
    let unnamed = rig.at(&format!("/{TARGET}"));
    for subcommand in ALL {
        if subcommand[0] != "discover" {
            let discover = format!("; iscsi-util discover {} lists its targets", rig.at(""));
            let parts = ["no target iqn.2026-01.org.example:other", &discover];
            refuses(&[subcommand, &[&other]].concat(), 69, "caller", &parts);
        }
        if !OF_TARGETS.contains(&subcommand[0]) {
            let parts =
                ["no logical unit 7", &format!("; iscsi-util luns {unnamed} lists its units")];
            refuses(&[subcommand, &[&none]].concat(), 69, "caller", &parts);
            let parts = ["names no logical unit"];
            refuses(&[subcommand, &[&unnamed]].concat(), 2, "caller", &parts);
        }
    }
    rig.assert_logged_out();
}

#[test]
fn urls_and_names() {
    for subcommand in ALL {
        for (url, part) in [
            ("iscsi://", "names no host"),
            ("http://me:hunter@127.0.0.1/", "no iSCSI URL"),
            ("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/x", "no logical unit number"),
        ] {
            refuses(&[subcommand, &[url]].concat(), 2, "caller", &[part]);
        }
        let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
        let arguments = [subcommand, &[&url, "--initiator-name", "host"]].concat();
        refuses(&arguments, 2, "caller", &["'host'", "choose another name"]);
    }
}

#[test]
fn command_lines() {
    let url = "iscsi://user%hunter2@127.0.0.1:1/iqn.2026-01.org.example:disk/0?timeout=hunter3";
    for (arguments, part) in [
        (&["ping", url, "--count", "0"][..], "0 is not in 1..=1000000"),
        (&["ping", url, "--interval", "soon"], "write a number of seconds from 0 to 3600"),
        (&["perf", url, "--size", "1"], "it must lie between 512 bytes and 64 MiB"),
        (&["perf", url, "--depth", "1025"], "1025 is not in 1..=1024"),
        (&["inquiry", url, "--page", "xx"], "write a page code in hexadecimal, 0 to ff"),
        (&["inquiry", url, "--page", "80", "--all"], "cannot be used with '--all'"),
        (&["discard", url, "--offset", "0"], "--length"),
        (&["capacity", url, url], "unexpected argument 'iscsi://...'"),
        (&[url], "unrecognized subcommand 'iscsi://...'"),
        (&["luns"], "<URL>"),
        (&[], "subcommand"),
    ] {
        let output = iscsi_util(arguments);
        let said = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{said}");
        assert!(said.contains(part) && !said.contains("hunter"), "{said:?} does not say {part:?}");
        let output = iscsi_util(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2));
        let failure = object(&output);
        assert_eq!((&failure["complete"], &failure["kind"]), (&false.into(), &"caller".into()));
        let error = failure["error"].as_str().unwrap();
        assert!(error.contains(part) && !error.contains("hunter"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_and_sizes_beyond_the_unit() {
    let rig = Rig::start(BLOCK, MIB).await;
    let url = rig.url();
    for (arguments, part) in [
        (&["extents", &url, "--offset", "2M"][..], "--offset 2 MiB leaves nothing of it"),
        (&["extents", &url, "--offset", "1M"], "--offset 1 MiB leaves nothing of it"),
        (&["extents", &url, "--length", "2M"], "--length 2 MiB ends at 2 MiB"),
        (
            &["extents", &url, "--offset", "18446744073709551615", "--length", "1"],
            "--offset 18446744073709551615 bytes leaves nothing",
        ),
        (
            &["discard", &url, "--offset", "512K", "--length", "1M", "--yes"],
            "--offset 512 KiB with --length 1 MiB ends at 1.5 MiB",
        ),
    ] {
        refuses(arguments, 2, "caller", &["the unit is too short: it has 1 MiB, and ", part]);
    }
    let size = |size, part| refuses(&["perf", &url, "--size", size], 2, "caller", &[part]);
    size("2M", "the unit holds 1 MiB; choose a smaller --size");
    size("513", "the unit has blocks of 512 bytes");
    size("64M", "32 requests of 64 MiB are more than 1 GiB");
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_the_unit_does_not_have() {
    let rig = Rig::start(BLOCK, MIB).await;
    let parts = ["the unit refuses VPD page c5: INQUIRY failed", "inquiry URL --page 0 lists"];
    refuses(&["inquiry", &rig.url(), "--page", "c5"], 69, "target", &parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.chap = Some(Chap::new("me", "the right hunter"));
    })
    .await;
    let portal = rig.server.address();
    let url = format!("iscsi://me:a%20wrong%20hunter@{portal}/{TARGET}/0");
    // The test target requires no password for discovery.
    for subcommand in ALL.into_iter().filter(|subcommand| subcommand[0] != "discover") {
        let parts = ["\"me\" or the password", "check both"];
        refuses(&[subcommand, &[&url]].concat(), 77, "caller", &parts);
    }
    refuses(&["ping", &rig.url()], 77, "caller", &["wants a user name and a password"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_gone() {
    let rig = Rig::start(BLOCK, MIB).await;
    let mut command = crate::support::program(&["capacity", &rig.url()]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("iscsi-util: standard output: "), "{}", stderr(&output));
}
