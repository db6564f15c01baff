//! Tests of the exit status: what must be mended first, and what may succeed at another try, have other ones. The tests
//! of each feature check its own status: 3 (`unreadable`), 4 (`passes`), 65 (`verify`), 130 (`interrupt`).

use iscsi_testkit::config::Chap;
use tokio::net::TcpListener;

use crate::support::{Folder, Rig, TARGET, block_copy, fails, pattern};

const LEN: usize = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn what_this_host_lacks_is_not_what_the_command_line_has_wrong() {
    let folder = Folder::new();
    let (image, map) = (folder.file("image", &pattern(LEN)), folder.path("map"));
    let rig = Rig::start(512, LEN as u64 / 2).await;
    for (arguments, status) in [
        (&[&*folder.path("missing"), "/dev/null"][..], 1),
        (&[&image, "/dev/full"], 1),
        (&[&image, &rig.url()], 2),
        (&[&image, &image], 2),
        (&["iscsi://host", "/dev/null"], 2),
        (&[&image, "/dev/null", "--checkpoint", &folder.file("text", b"no map"), "--resume"], 2),
    ] {
        fails(&block_copy(&[arguments, &["--progress", "none"]].concat()), status, &[]);
    }
    assert!(!std::fs::exists(map).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_refuses_is_not_one_that_is_away() {
    let folder = Folder::new();
    let image = folder.file("image", &pattern(LEN));
    let rig = Rig::start(512, LEN as u64).await;
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = listener.local_addr().unwrap();
    drop(listener);
    rig.disk.set_read_only(true);
    for (source, destination, status) in [
        (&*image, &*rig.url(), 69),
        (&*rig.at(&format!("/{TARGET}/7")), "/dev/null", 69),
        (&*rig.at("/iqn.2026-01.org.example:another/0"), "/dev/null", 69),
        (&format!("iscsi://{port}/{TARGET}/0"), "/dev/null", 75),
        (&format!("nbd://{port}"), "/dev/null", 75),
        (&format!("nbd+unix:///?socket={}", folder.path("missing")), "/dev/null", 75),
    ] {
        fails(&block_copy(&[source, destination, "--progress", "none"]), status, &[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_not_accepted_has_a_status_of_its_own() {
    let chap = Chap::new("me", "the right hunter");
    let rig = Rig::start_with(512, LEN as u64, |config| config.chap = Some(chap)).await;
    let wrong = rig.url().replace("iscsi://", "iscsi://me%thewronghunter@");
    for url in [&*rig.url(), &wrong] {
        fails(&block_copy(&[url, "/dev/null", "--progress", "none"]), 77, &[]);
    }
}
