//! Tests of devices in use, and of names that are probably typos: no data of a user are lost, and no file is
//! created.

use std::fs;
use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;

use crate::support::{Folder, block_copy, fails, pattern, program, refuses, succeeds};

const QUIET: [&str; 2] = ["--progress", "none"];

/// Returns the names of all files in the folder.
fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path("")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_block_device_in_use_is_written_to_with_force_only() {
    let folder = Folder::new();
    let (image, disk) = (pattern(1 << 20), vec![9; 1 << 20]);
    let (source, backing) = (folder.file("image", &image), folder.file("disk", &disk));
    let output = Command::new("losetup").args(["--find", "--show", &backing]).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        eprintln!("SKIPPED: losetup gives no loop device; run this as root where there are some");
        return;
    };
    let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    // Opens the device exclusively, as a mount, the device mapper or another program does.
    let holder =
        OpenOptions::new().read(true).custom_flags(OFlag::O_EXCL.bits()).open(&device).unwrap();
    let copy = |to: &str, more: &[&str]| block_copy(&[&[&source, to], more, &QUIET].concat());
    let refused = copy(&device, &[]);
    // The device is also refused if standard output leads to it.
    let redirected = |more: &[&str]| {
        let output = OpenOptions::new().write(true).open(&device).unwrap();
        let mut command = program(&[&[&source, "-"], more, &QUIET].concat());
        command.stdout(output).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    let redirected = redirected(&[]);
    let of_file = copy(&backing, &[]);
    let before = fs::read(&device).unwrap();
    let source_in_use = block_copy(&[&[&*device, &*folder.path("copy")][..], &QUIET].concat());
    let forced = copy(&device, &["--force"]);
    let after = fs::read(&device).unwrap();
    drop(holder);
    drop(Command::new("losetup").args(["--detach", &device]).status());
    let told = [&*device, "in use", "another program has claimed it", "--force"];
    fails(&refused, 1, &told);
    fails(&redirected, 1, &["standard output", "in use", "--force"]);
    fails(&of_file, 1, &[&backing, &format!("shown by {device}"), "--force"]);
    assert!(before == disk, "something was written");
    succeeds(&source_in_use);
    succeeds(&forced);
    assert!(after == image);
}

#[test]
fn a_typo_below_dev_makes_no_file() {
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    let (name, link) =
        (format!("/dev/block-copy-test-{}", std::process::id()), folder.path("link"));
    symlink(&name, &link).unwrap();
    // Removes what was created in /dev, before an assertion can fail and leave it there.
    let is_made = || {
        let paths = [name.clone(), format!("{name}.new")];
        paths.iter().filter(|path| fs::remove_file(path).is_ok()).count() > 0
    };
    for destination in [&name, &link] {
        let output = block_copy(&[&[&*image, destination][..], &QUIET].concat());
        assert!(!is_made(), "{destination}");
        fails(&output, 1, &["destination", "no such device", "check the path"]);
    }
    // A checkpoint or digest file must not be a device either.
    let copy = folder.path("copy");
    for option in ["--checkpoint", "--digests"] {
        let keeping = |path| block_copy(&[&[&*image, &copy, option, path][..], &QUIET].concat());
        let output = keeping(&name);
        assert!(!is_made(), "{option}");
        fails(&output, 1, &["no such device"]);
        fails(&keeping("/dev/null"), 2, &["no regular file"]);
    }
    refuses(1, &image, "/dev/urandom", &["character device", "name a block device"]);
}

#[test]
fn what_is_written_like_a_url_is_no_file() {
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    let run = |source: &str, destination: &str| {
        let mut command = program(&[&[source, destination][..], &QUIET].concat());
        command.current_dir(folder.path("")).output().unwrap()
    };
    for (name, instead) in [
        ("iscsi:foo", "iscsi://HOST:PORT/TARGET/LUN"),
        ("iqn.2026-01.org.example:disk", "iscsi://HOST:PORT/TARGET/LUN"),
        ("nbd:127.0.0.1:3410:exportname=x", "write nbd://127.0.0.1:3410/x;"),
        ("server:/srv/disk", "./ before it"),
    ] {
        fails(&run(&image, name), 2, &["destination", "is no path", instead]);
        fails(&run(name, &folder.path("copy")), 2, &["source", "is no path", instead]);
    }
    assert_eq!(names(&folder), ["image"]);
    succeeds(&run(&image, "./iscsi:foo"));
    assert_eq!(fs::read(folder.path("iscsi:foo")).unwrap(), b"x");
    // The name of an existing file without `./` is refused as a destination, but accepted as a source.
    fails(&run(&image, "iscsi:foo"), 2, &["is no path"]);
    succeeds(&run("iscsi:foo", "copy"));
    let job = "[[job]]\nsource = \"image\"\ndestination = \"nbd:host\"\n";
    let jobs = folder.file("jobs.toml", job.as_bytes());
    let mut command = program(&["--jobs", &jobs, "--progress", "none"]);
    let output = command.current_dir(folder.path("")).output().unwrap();
    fails(&output, 2, &["job 1", "is no path"]);
    assert_eq!(names(&folder), ["copy", "image", "iscsi:foo", "jobs.toml"]);
}

#[test]
fn a_name_that_is_that_of_a_folder_makes_no_file() {
    let folder = Folder::new();
    let image = folder.file("image", b"x");
    refuses(1, &image, &folder.path("new/"), &["directory", "name a file"]);
    let mut command = program(&[&[&*image, ""][..], &QUIET].concat());
    fails(&command.output().unwrap(), 2, &["is empty"]);
    assert_eq!(names(&folder), ["image"]);
}
