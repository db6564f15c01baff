//! Tests that the commands destroy data only with the user's consent.

use iscsi_testkit::disk::RamDisk;

use crate::support::{BLOCK, MIB, Rig, json_of, refuses};

const UNMAP: u8 = 0x42;

/// Checks that the data on the unit have not changed.
fn assert_untouched(rig: &Rig) {
    let untouched = RamDisk::new(BLOCK, rig.disk.blocks());
    untouched.fill(7);
    assert_eq!(rig.disk.first_difference(&untouched), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_consent_nothing_is_lost() {
    let rig = Rig::start(BLOCK, MIB).await;
    rig.disk.fill(7);
    let url = rig.url();
    let parts = ["destroys 64 KiB of the unit from byte 4096 on", "--yes"];
    refuses(&["discard", &url, "--offset", "4k", "--length", "64k"], 2, "caller", &parts);
    refuses(&["perf", &url, "--write"], 2, "caller", &["destroys what the unit holds", "--yes"]);
    assert_untouched(&rig);
    let sessions = rig.server.with(|target| target.commands().len());
    assert_eq!(sessions, 0, "it asked the target for nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_takes_whole_blocks_of_its_range() {
    let rig = Rig::start(BLOCK, MIB).await;
    rig.disk.fill(7);
    let before = rig.disk.read(0, 1 << 20);
    let options = ["--offset", "65535", "--length", "65537", "--yes"];
    let object = json_of(&[&["discard", &rig.url()][..], &options].concat());
    assert_eq!(object["bytes_discarded"], 65_536);
    assert!(rig.disk.holds(0, &before[..65_536]) && rig.disk.holds(131_072, &before[131_072..]));
    assert!(rig.disk.holds(65_536, &[0; 65_536]));
    assert_eq!(rig.seen(UNMAP), 1);
    assert!(rig.disk.flushes() > 0);

    let none = ["discard", &rig.url(), "--offset", "1", "--length", "510", "--yes"];
    refuses(&none, 2, "caller", &["no whole block of 512 bytes lies in the range"]);
    assert_eq!(rig.seen(UNMAP), 1);
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_cannot_be_changed_refuse() {
    let rig =
        Rig::start_with(BLOCK, MIB, |config| config.units.get_mut(&0).unwrap().thin = false).await;
    rig.disk.fill(7);
    let url = rig.url();
    let discard = ["discard", &url, "--offset", "0", "--length", "64k", "--yes"];
    refuses(&discard, 69, "target", &["UNMAP"]);
    rig.disk.set_read_only(true);
    refuses(&discard, 69, "target", &["write protected"]);
    refuses(&["perf", &rig.url(), "--write", "--yes"], 69, "target", &["write protected"]);
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_all_over_the_unit_and_are_flushed() {
    let rig = Rig::start(BLOCK, MIB).await;
    let options = ["--write", "--yes", "--seconds", "1", "--size", "64k", "--depth", "4"];
    let object = json_of(&[&["perf", &rig.url()][..], &options].concat());
    assert_eq!((&object["direction"], &object["io_size_bytes"]), (&"write".into(), &65_536.into()));
    assert!(object["requests"].as_u64().unwrap() >= 16, "{object}");
    assert!(object["flush_ms"].as_f64().is_some());
    let first = rig.disk.read(0, 65_536);
    assert!(first.iter().any(|byte| *byte != 0));
    assert!((0..16).all(|place| rig.disk.holds(place * 65_536, &first)));
    assert!(rig.disk.flushes() > 0);
    rig.assert_logged_out();
}
