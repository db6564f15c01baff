//! Passwords that come from a file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use iscsi_testkit::config::Chap;

use crate::support::{Folder, Rig, TARGET, block_copy, fails, succeeds};

const LEN: u64 = 1 << 16;

/// A file that its owner alone may read.
fn file(folder: &Folder, content: &[u8]) -> String {
    let path = folder.file("password", content);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_one_line_and_others_should_not_read_it() {
    let chap = Chap::new("me", "hunter2hunter2");
    let rig = Rig::start_with(512, LEN, |config| config.chap = Some(chap)).await;
    let url = format!("iscsi://me@{}/{TARGET}/0", rig.server.address());
    let folder = Folder::new();
    let copied = |path: &str| {
        block_copy(&[&url, &folder.path("copy"), "--progress", "none", "--password-file", path])
    };
    let long = [&b"hunter2hunter2\n"[..], &[b'x'; 5000]].concat();
    for content in [
        &b"hunter2hunter2"[..],
        b"hunter2hunter2\n",
        b"hunter2hunter2\r\n",
        b"hunter2hunter2\nsecond line\n",
        &long,
    ] {
        assert_eq!(succeeds(&copied(&file(&folder, content))), "");
    }
    let path = file(&folder, b"hunter2hunter2\n");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let said = succeeds(&copied(&path));
    let expected = format!("warning: password file {path}: others may read it; chmod 600 {path}\n");
    assert_eq!(said, expected);

    fails(&copied(&file(&folder, b"hunter3hunter3")), 1, &["source: ", "password"]);
    for nothing in [&b"\n"[..], b"\nhunter2hunter2\n", &[b'x'; 4097]] {
        let output = copied(&file(&folder, nothing));
        fails(&output, 1, &["password file ", "it holds no password"]);
    }
    fails(&copied(&folder.path("missing")), 1, &["password file ", "check the path"]);
    let nobody = rig.at(&format!("/{TARGET}/0"));
    let arguments = [&*nobody, "/dev/null", "--progress", "none", "--password-file", &path];
    fails(&block_copy(&arguments), 2, &["--password-file needs a user"]);
}
