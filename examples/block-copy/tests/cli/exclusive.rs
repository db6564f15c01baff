//! Tests of exclusive copies, and of copies to units with registrations of other hosts.

use std::process::Stdio;

use iscsi_testkit::scsi::Reservations;

use crate::support::{
    Folder, Rig, block_copy, ends, fails, object, pattern, program, signal, succeeds, until,
};

const LEN: usize = 1 << 20;
const QUIET: [&str; 2] = ["--progress", "none"];
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const ANOTHER: u64 = 0xb;

fn reservations(rig: &Rig) -> Reservations {
    rig.server.with(|target| target.config_mut().units[&0].reservations.clone())
}

fn copy(arguments: &[&str]) -> std::process::Output {
    block_copy(&[arguments, &QUIET].concat())
}

/// An exclusive copy has its unit reserved from before the first write until its end. The next copy takes over
/// the reservation of a killed copy.
#[tokio::test(flavor = "multi_thread")]
async fn the_unit_is_reserved_for_a_copy_and_taken_over_after_a_crash() {
    let rig = Rig::start(512, LEN as u64).await;
    let reservations = reservations(&rig);
    let folder = Folder::new();
    let (image, url) = (folder.file("image", &pattern(LEN)), rig.url());
    let exclusive = [&*image, &url, "--exclusive", "--sessions", "2"];
    for signal_name in ["-KILL", "-TERM"] {
        let slow = [&exclusive[..], &["--rate-limit", "64kbit"], &QUIET].concat();
        let mut command = program(&slow);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let before = rig.written();
        until(&mut child, || rig.written() > before).await;
        let (kind, key) = reservations.holder().unwrap();
        assert_eq!(kind, WRITE_EXCLUSIVE_REGISTRANTS);
        assert!(reservations.keys().iter().all(|other| *other == key), "what was left is gone");
        // A second copy on this host is refused, and the reservation stays.
        let second = format!("process {} of this host writes there", child.id());
        fails(&copy(&exclusive), 75, &[&second]);
        assert_eq!(reservations.holder(), Some((kind, key)));
        // Another initiator name stands for another host.
        let mut other = exclusive.to_vec();
        other.extend(["--initiator-name", "iqn.2026-01.org.example:another"]);
        fails(&copy(&other), 75, &["destination"]);
        assert_eq!(reservations.holder(), Some((kind, key)));
        signal(&child, signal_name);
        ends(child).await;
        let held = reservations.holder();
        assert_eq!(held, (signal_name == "-KILL").then_some((kind, key)), "{signal_name}");
        if signal_name == "-KILL" {
            let advice = [&*format!("the key {key:#018x}"), "iscsi-util preempt"];
            fails(&copy(&other), 69, &advice);
            assert_eq!(reservations.holder(), Some((kind, key)));
            // An initiator without a registration cannot write.
            fails(&copy(&[&image, &url]), 69, &["reservation"]);
        }
    }
    succeeds(&copy(&exclusive));
    assert!(rig.disk.holds(0, &pattern(LEN)));
    assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
    rig.assert_clean();
}

/// A copy takes over the reservation of a killed copy at LIO. LIO refuses PREEMPT from another process of the
/// holder's initiator, and may have no place to store registrations.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_copy_has_left_at_lio_is_taken_over() {
    let rig = Rig::start_with(512, LEN as u64, |config| {
        let behavior = &mut config.units.get_mut(&0).unwrap().behavior;
        (behavior.holder_hides_registrations, behavior.forgetful_registrations) = (true, true);
    })
    .await;
    let reservations = reservations(&rig);
    let folder = Folder::new();
    let (image, url) = (folder.file("image", &pattern(LEN)), rig.url());
    let exclusive = [&*image, &url, "--exclusive", "--sessions", "3"];
    let mut command = program(&[&exclusive[..], &["--rate-limit", "64kbit"], &QUIET].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    until(&mut child, || rig.written() > 0).await;
    let held = reservations.holder();
    signal(&child, "-KILL");
    ends(child).await;
    assert!(held.is_some() && reservations.holder() == held);
    succeeds(&copy(&exclusive));
    assert!(rig.disk.holds(0, &pattern(LEN)));
    assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn others_that_are_registered_are_told_and_refused_where_that_is_asked_for() {
    let rig = Rig::start(512, LEN as u64).await;
    let reservations = reservations(&rig);
    let folder = Folder::new();
    let (image, url) = (folder.file("image", &pattern(LEN)), rig.url());
    let told = "another host is registered with it, by the key 0x000000000000000b";
    let note = |more: &[&str]| {
        let output = block_copy(&[&[&*image, &url, "--json"], more, &QUIET].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        object(&output)["notes"].to_string()
    };
    assert!(!note(&[]).contains("registered"), "nobody else");
    reservations.register_by_another(ANOTHER);
    assert!(note(&[]).contains(told));
    fails(&copy(&[&image, &url, "--exclusive"]), 69, &["the key 0x000000000000000b"]);
    assert_eq!(reservations.keys(), [ANOTHER], "no registration is left");
    // A registration with the key in the URL belongs to this copy, so there is no warning.
    let own = format!("{url}?reservation_key=0xb");
    let output = block_copy(&[&[&*image, &own, "--json"], &QUIET[..]].concat());
    assert!(!object(&output)["notes"].to_string().contains("registered"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_reserved_is_refused() {
    let rig = Rig::start_with(512, LEN as u64, |config| {
        config.units.get_mut(&0).unwrap().behavior.refused = vec![0x5e, 0x5f];
    })
    .await;
    let folder = Folder::new();
    let (image, url) = (folder.file("image", &pattern(LEN)), rig.url());
    fails(&copy(&[&image, &url, "--exclusive"]), 2, &["persistent reservations", "--exclusive"]);
    assert_eq!(rig.written(), 0);
    succeeds(&copy(&[&image, &url]));
    let with_key = format!("{url}?reservation_key=0x1");
    fails(&copy(&[&image, &with_key, "--exclusive"]), 2, &["leave reservation_key out"]);
    fails(&copy(&[&url, &folder.path("copy"), "--exclusive"]), 2, &["leave it out"]);
}
