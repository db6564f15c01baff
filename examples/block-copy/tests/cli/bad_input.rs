//! Tests of wrong inputs. For each: one sentence that says what to do, an exit status other than zero, and no
//! claim about a copy that did not happen.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use iscsi_testkit::config::{Chap, TargetConfig};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{
    Folder, Rig, TARGET, block_copy, block_copy_with_input, fails, pattern, program, refuses,
};

const MIB: u64 = 1 << 20;

#[test]
fn files_that_cannot_be() {
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    let missing = folder.path("missing");
    refuses(1, &missing, &folder.path("copy"), &["source", &missing, "check the path"]);
    assert!(!fs::exists(folder.path("copy")).unwrap(), "a destination was made for nothing");
    refuses(1, &image, &format!("{missing}/copy"), &["destination", "check the path"]);
    refuses(1, &folder.path(""), &folder.path("copy"), &["directory", "name a file"]);
    refuses(1, &image, &folder.path(""), &["directory", "name a file"]);
}

/// A failure before anything is copied does not change the data on the destination, and creates no file.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_fails_at_once_leaves_the_destination_as_it_was() {
    let bad = |config: &mut TargetConfig| config.faults.push(Fault::medium_error(0..2048));
    let rig = Rig::start_with(512, MIB, bad).await;
    rig.disk.fill(9);
    let folder = Folder::new();
    let (url, new, text) = (rig.url(), folder.path("new"), folder.file("text", b"no ranges"));
    let (old, map) = (folder.file("old", b"precious"), folder.path("map"));
    for (source, more) in [
        (&*url, &["--progress", "none"][..]),
        (&url, &["--offset", "2M"]),
        (&url, &["--ranges", &text]),
        (&url, &["--digests", &text]),
        ("/dev/null", &["--length", "1M"]),
    ] {
        for to in [&new, &old] {
            let output = block_copy(&[&[source, to], more].concat());
            assert_ne!(output.status.code(), Some(0), "{source} {to} {more:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(!said.contains("incomplete"), "{said}");
            assert_eq!(fs::read(&old).unwrap(), b"precious", "{more:?}");
            // With --digests an empty destination file stays: the digests of another copy may refer to it by
            // its inode number.
            let is_kept = more.contains(&"--digests") && *to == new;
            assert_eq!(fs::exists(&new).unwrap(), is_kept, "{source} {more:?}");
            _ = fs::remove_file(&new);
        }
    }
    // The file stays: the checkpoint refers to it by its inode number.
    let arguments = [&*url, &new, "--checkpoint", &map, "--progress", "none"];
    fails(&block_copy(&arguments), 69, &["source", "--resume goes on"]);
    assert!(fs::read(&new).unwrap().is_empty());
}

#[test]
fn a_place_that_is_full() {
    let folder = Folder::new();
    let image = folder.file("image", &pattern(4096));
    refuses(1, &image, "/dev/full", &["destination /dev/full", "make room there"]);

    let command = program(&[&image, &folder.path("copy"), "--progress", "none"]);
    let copy = [command.get_program()].into_iter().chain(command.get_args());
    // The shell's `ulimit` counts in units of 512 or 1024 bytes, so the limit is less than the image.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]).args(copy).stdin(Stdio::null());
    fails(&limited.output().unwrap(), 1, &["destination", "File too large", "ulimit -f"]);
}

#[test]
fn a_file_onto_itself() {
    let folder = Folder::new();
    let image = folder.file("image", b"precious");
    refuses(2, &image, &image, &["the same file"]);
    let link = folder.path("link");
    fs::hard_link(&image, &link).unwrap();
    refuses(2, &image, &link, &["the same file"]);
    assert_eq!(fs::read(image).unwrap(), b"precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_onto_itself() {
    let rig = Rig::start(512, MIB).await;
    refuses(2, &rig.url(), &rig.url(), &["the same unit"]);
}

#[test]
fn urls() {
    for (url, part) in [
        ("iscsi://", "names no host"),
        ("iscsi://127.0.0.1", "names no target"),
        ("iscsi://127.0.0.1/iqn.2026-01.org.example:disk", "names no logical unit"),
        ("iscsi://127.0.0.1/disk/0", "disk"),
        ("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/x", "no logical unit number"),
        ("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/0?fast=1", "no URL option \"fast\""),
        ("iscsi://me@127.0.0.1/iqn.2026-01.org.example:disk/0", "has no password"),
        ("http://me:hunter@127.0.0.1/", "no iSCSI URL"),
    ] {
        refuses(2, url, "/dev/null", &["source", part]);
        refuses(2, "/dev/null", url, &["destination", part]);
    }
}

#[test]
fn an_initiator_name_that_is_none() {
    let output = block_copy(&["a", "b", "--initiator-name", "host", "--progress", "none"]);
    fails(&output, 2, &["'host'", "choose another name"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_too_small() {
    let rig = Rig::start(512, MIB).await;
    let folder = Folder::new();
    let image = pattern(MIB as usize + 1);
    let source = folder.file("image", &image);
    let parts = ["too small", "1048576", "1048577", "choose a larger one"];
    refuses(2, &source, &rig.url(), &parts);

    let mut command = program(&["-", &rig.url(), "--progress", "none"]);
    let input = Stdio::from(fs::File::open(&source).unwrap());
    fails(&command.stdin(input).output().unwrap(), 2, &parts);
    assert!(rig.disk.holds(0, &vec![0; MIB as usize]), "something was written all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_turns_out_too_long() {
    let rig = Rig::start(512, MIB).await;
    let image = pattern(MIB as usize + 1);
    let arguments = ["-", &rig.url(), "--io-size", "64k", "--progress", "none"];
    let output = block_copy_with_input(&arguments, &image);
    fails(&output, 2, &["too small: it holds 1 MiB and the source has more"]);
    let output = block_copy_with_input(&arguments, &image[1..]);
    assert!(output.status.success(), "a stream that just fits is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password() {
    let rig = Rig::start_with(512, MIB, |config| {
        config.chap = Some(Chap::new("me", "the right hunter"));
    })
    .await;
    let portal = rig.server.address();
    let url = format!("iscsi://me:a%20wrong%20hunter@{portal}/{TARGET}/0");
    refuses(77, &url, "/dev/null", &["source", "\"me\" or the password", "check both"]);
    refuses(77, &rig.url(), "/dev/null", &["wants a user name and a password"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_and_units_that_do_not_exist() {
    let rig = Rig::start(512, MIB).await;
    let other = rig.at("/iqn.2026-01.org.example:other/0");
    refuses(69, "/dev/null", &other, &["no target iqn.2026-01.org.example:other"]);
    refuses(69, "/dev/null", &rig.at(&format!("/{TARGET}/7")), &["no logical unit 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_read_only() {
    let rig = Rig::start(512, MIB).await;
    rig.disk.set_read_only(true);
    refuses(69, "/dev/null", &rig.url(), &["destination", "write protected"]);
    let output = block_copy(&[&rig.url(), "/dev/null", "--progress", "none"]);
    assert!(output.status.success(), "reading needs no right to write");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_no_disk() {
    // INQUIRY is the first of ten commands that read the properties of a unit. The session sends it twice,
    // because the first response is not that of a disk. The response describes a tape: its type, removable,
    // SPC-4, response format 2.
    let mut inquiry = vec![0; 74];
    inquiry[..5].copy_from_slice(&[1, 0x80, 6, 2, 69]);
    let tape = |nth| Fault::sending(Opcode::DataIn, nth, Effect::SetData(inquiry.clone().into()));
    let rig = Rig::start_with(512, MIB, |config| config.faults = vec![tape(0), tape(10)]).await;
    refuses(2, "/dev/null", &rig.url(), &["not a block device", "choose a disk"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    drop(listener);
    let nobody = format!("nothing listens at {portal}");
    refuses(75, &format!("iscsi://{portal}/{TARGET}/0"), "/dev/null", &[&nobody, "check the port"]);
}

/// The error names the address, and the option with which the program waits for the server (`--wait`). For a
/// Unix socket without a file, the error says that there is no such socket.
#[tokio::test(flavor = "multi_thread")]
async fn an_nbd_server_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let advice = "check the address, and that the server is running, or wait for it (--wait 5min)";
    let refused = format!("no NBD server listens at {address}; {advice}");
    let uri = format!("nbd://{address}/disk");
    refuses(75, &uri, "/dev/null", &[&format!("source: {refused}")]);
    refuses(75, "/dev/zero", &uri, &[&format!("destination: {refused}")]);
    let missing = "no NBD server listens at /nowhere/disk.sock: there is no such socket";
    let uri = "nbd+unix:///?socket=/nowhere/disk.sock";
    refuses(75, uri, "/dev/null", &[&format!("source: {missing}; {advice}")]);
    refuses(
        2,
        "nbd://",
        "/dev/null",
        &["source: the host is missing; write nbd://HOST:PORT/EXPORT"],
    );
}

#[test]
fn an_unknown_host() {
    let url = format!("iscsi://no-such-host.invalid/{TARGET}/0");
    refuses(75, &url, "/dev/null", &["\"no-such-host.invalid\" is not known"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_accepts_and_stays_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    let url = format!("iscsi://{portal}/{TARGET}/0?login_timeout=1");
    refuses(75, "/dev/null", &url, &["did not answer in time", &portal.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_speaks_something_else() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 48]).await.unwrap();
        stream.write_all(&b"HTTP/1.1 400 Bad Request\r\n".repeat(4)).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    });
    let who = format!("{portal} does not speak iSCSI");
    refuses(69, "/dev/null", &format!("iscsi://{portal}/{TARGET}/0"), &[&who]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_refuses_a_write() {
    let rig = Rig::start_with(512, MIB, |config| config.record = true).await;
    let mut command = program(&["-", &rig.url(), "--progress", "none"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The last command before the copy is a ping. So the unit becomes write-protected after all checks, and
    // before the first write.
    let is_ping = |pdu: &Pdu| pdu.header[0] & 0x3f == 0;
    while !rig.server.with(|target| target.received().iter().any(|(_, pdu)| is_ping(pdu))) {
        assert!(child.try_wait().unwrap().is_none(), "the program ended early");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rig.disk.set_read_only(true);
    child.stdin.take().unwrap().write_all(&pattern(4096)).unwrap();
    let output = child.wait_with_output().unwrap();
    fails(&output, 69, &["destination: WRITE (16) failed", "WRITE PROTECTED"]);
}
