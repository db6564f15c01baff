//! Tests of passwords from files and from the environment.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use iscsi_testkit::config::Chap;

use crate::support::{Folder, Rig, TARGET, block_copy, fails, program, succeeds};

const LEN: u64 = 1 << 16;

/// Creates a file that only its owner may read.
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
    assert!(said.ends_with(&expected) && said.lines().count() == 1, "{said}");

    fails(&copied(&file(&folder, b"hunter3hunter3")), 77, &["source: ", "password"]);
    for nothing in [&b"\n"[..], b"\nhunter2hunter2\n", &[b'x'; 4097]] {
        let output = copied(&file(&folder, nothing));
        fails(&output, 1, &["password file ", "it holds no password"]);
    }
    fails(&copied(&folder.path("missing")), 1, &["password file ", "check the path"]);
    fails(&copied(&folder.path("")), 1, &["password file ", "it is a directory"]);
    let nobody = rig.at(&format!("/{TARGET}/0"));
    let arguments = [&*nobody, "/dev/null", "--progress", "none", "--password-file", &path];
    fails(&block_copy(&arguments), 2, &["--password-file needs a user"]);
}

/// Environment variables with a user name and a password.
const ENVIRONMENT: [(&str, &str); 2] =
    [("LIBISCSI_CHAP_USERNAME", "me"), ("LIBISCSI_CHAP_PASSWORD", "hunter2hunter2")];

/// One password must not be sent to two hosts: each could use it to log in to the other.
#[test]
fn one_password_goes_to_one_host() {
    let folder = Folder::new();
    let path = file(&folder, b"hunter2hunter2");
    let [one, other] =
        ["127.0.0.1", "127.0.0.2"].map(|host| format!("iscsi://me@{host}:1/{TARGET}/0"));
    let ends = [&*one, &*other, "--progress", "none"];
    let with = |more: &[&str]| block_copy(&[&ends, more].concat());
    let (two, own) =
        (["127.0.0.1 and 127.0.0.2"], "--source-password-file and --destination-password-file");
    for (option, own) in [
        ("--password-file", own),
        (
            "--target-password-file",
            "--source-target-password-file and --destination-target-password-file",
        ),
    ] {
        fails(&with(&[option, &path]), 2, &[option, two[0], own]);
    }
    let output = program(&ends).envs(ENVIRONMENT).output().unwrap();
    fails(&output, 2, &["LIBISCSI_CHAP_PASSWORD would give", two[0], own]);
    let mut command = program(&ends);
    command.args(["--source-password-file", &path]).envs(ENVIRONMENT);
    // A password from the environment for one end only is accepted, so the program tries to connect.
    fails(&command.output().unwrap(), 75, &["nothing listens"]);
    // A volume is one end of a copy: its units may be at several hosts, and use one password.
    let one_host = [&*one, &*one, "--progress", "none", "--password-file", &path];
    fails(&block_copy(&one_host), 75, &["nothing listens"]);

    for (option, part) in [
        ("--source-password-file", "needs a user"),
        ("--destination-password-file", "there is none"),
        ("--destination-target-password-file", "there is none"),
    ] {
        let nobody = format!("iscsi://127.0.0.1:1/{TARGET}/0");
        let output = block_copy(&[&nobody, "/dev/null", "--progress", "none", option, &path]);
        fails(&output, 2, &[option, part]);
    }
    let both = ["--source-password-file", &path, "--destination-password-file", &path];
    let output = with(&[&both[..], &["--password-file", &path]].concat());
    fails(&output, 2, &["--password-file: each unit has its password already"]);
}

/// Source and destination have separate accounts and password files, and each target authenticates itself.
#[tokio::test(flavor = "multi_thread")]
async fn each_end_has_passwords_of_its_own() {
    let rig = async |secret: &str, of_target: &str| {
        let chap = Chap::new("me", secret).mutual("you", of_target);
        Rig::start_with(512, LEN, |config| config.chap = Some(chap)).await
    };
    let (source, destination) = (
        rig("hunter2hunter2", "hunter4hunter4").await,
        rig("hunter3hunter3", "hunter5hunter5").await,
    );
    let folder = Folder::new();
    let file = |name, content: &str| {
        let path = folder.file(name, content.as_bytes());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let [from, to] =
        [&source, &destination].map(|rig| rig.url().replace("iscsi://", "iscsi://me@"));
    let (own_of_source, own_of_destination) =
        (file("1", "hunter2hunter2"), file("2", "hunter3hunter3"));
    let (of_source, of_destination) = (file("3", "hunter4hunter4\n"), file("4", "hunter5hunter5"));
    let arguments = |of_destination: &str| {
        block_copy(&[
            &from,
            &to,
            "--progress",
            "none",
            "--source-password-file",
            &own_of_source,
            "--destination-password-file",
            &own_of_destination,
            "--source-target-password-file",
            &of_source,
            "--destination-target-password-file",
            of_destination,
        ])
    };
    assert_eq!(succeeds(&arguments(&of_destination)), "");
    // A target that does not authenticate itself receives no data.
    fails(&arguments(&of_source), 77, &["destination: "]);
}

/// If the credentials in the environment are incomplete, the program must not log in without authentication.
#[test]
fn half_of_the_credentials_in_the_environment_is_refused() {
    let url = format!("iscsi://127.0.0.1:1/{TARGET}/0");
    for (variables, part) in [
        (&["PASSWORD"][..], "there is a password (perhaps in LIBISCSI_CHAP_PASSWORD), but no user"),
        (&["USERNAME"], "has no password"),
        (&["USERNAME", "PASSWORD", "TARGET_USERNAME"], "would have nothing to prove"),
        (&["TARGET_PASSWORD"], "needs a user and a password of the initiator"),
    ] {
        let mut command = program(&[&url, "/dev/null", "--progress", "none"]);
        command
            .envs(variables.iter().map(|name| (format!("LIBISCSI_CHAP_{name}"), "hunter2hunter2")));
        // The message may contain the user name, but not the password.
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(said.contains(part), "{variables:?}: {said}");
    }
}

/// A command of the user may write its environment to a file. So it does not inherit the credentials.
#[test]
fn a_command_does_not_inherit_the_credentials() {
    let folder = Folder::new();
    let (image, copy) = (folder.file("image", &[7; 4096]), folder.path("copy"));
    let environment = folder.path("environment");
    let line = format!("env >>{environment}");
    let mut command = program(&[&image, &copy, "--ranges-from", &line]);
    command.args(["--before-last-pass", &line, "--progress", "none"]);
    for name in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env(format!("LIBISCSI_CHAP_{name}"), "hunter2hunter2");
    }
    succeeds(&command.env("OTHER", "is kept").output().unwrap());
    let inherited = fs::read_to_string(environment).unwrap();
    assert!(inherited.contains("OTHER=is kept"), "{inherited}");
    assert!(!inherited.contains("hunter2"), "{inherited}");
}

/// A secret below 96 bits can be guessed from the messages (RFC 7143 §9.2.1). The program warns of it, or with
/// `chap_short_secrets=refuse` refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_secret_is_warned_of_or_refused() {
    for (secret, is_short) in [("hunter2", true), ("hunter2hunt", true), ("hunter2hunte", false)] {
        let chap = Chap::new("me", secret);
        let rig = Rig::start_with(512, LEN, |config| config.chap = Some(chap)).await;
        let folder = Folder::new();
        let (path, copy) = (file(&folder, secret.as_bytes()), folder.path("copy"));
        let copied = |options: &str| {
            let url = format!("{}{options}", rig.url().replace("iscsi://", "iscsi://me@"));
            block_copy(&[&url, &copy, "--progress", "plain", "--password-file", &path])
        };
        let said = succeeds(&copied(""));
        assert_eq!(said.contains("shorter than 96 bits"), is_short, "{said}");
        if is_short {
            fails(&copied("?chap_short_secrets=refuse"), 77, &["96 bits"]);
        } else {
            succeeds(&copied("?chap_short_secrets=refuse"));
        }
    }
}
