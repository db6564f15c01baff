//! Tests with block devices of this host as destinations: loop devices, where the test is permitted to create
//! them.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

use iscsi_copy::{CopyJob, Destination, FileDevice, FileOptions, InUse, Source};
use nix::fcntl::OFlag;

use crate::support::{Folder, pattern};

const MIB: usize = 1 << 20;

/// A loop device that shows a file, until it is dropped.
struct Loop(String);

impl Loop {
    /// Attaches a loop device; `None` where the system does not permit that.
    fn attach(image: &Path) -> Option<Self> {
        let mut command = Command::new("losetup");
        let output = command.args(["--find", "--show", "--partscan"]).arg(image).output();
        let output = output.ok().filter(|output| output.status.success());
        if output.is_none() {
            eprintln!(
                "SKIPPED: losetup gives no loop device; run this as root where there are some"
            );
        }
        Some(Self(String::from_utf8(output?.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").args(["--detach", &self.0]).status());
    }
}

/// Claims a block device, as a mount, the device mapper or another program does.
fn claim(path: &str) -> File {
    let claim = || OpenOptions::new().read(true).custom_flags(OFlag::O_EXCL.bits()).open(path);
    for _ in 0..500 {
        match claim() {
            // The kernel may still hold the device for a moment, because other tests attach and detach devices.
            Err(why) if why.kind() == ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            claimed => return claimed.unwrap(),
        }
    }
    claim().unwrap()
}

fn users(error: &std::io::Error) -> &InUse {
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    error.get_ref().unwrap().downcast_ref().unwrap()
}

#[tokio::test]
async fn a_device_that_another_program_has_claimed_is_not_written_to() {
    let folder = Folder::new();
    let (image, from) = (folder.path("image"), folder.path("from"));
    fs::write(&image, vec![9; MIB]).unwrap();
    fs::write(&from, pattern(MIB)).unwrap();
    let Some(device) = Loop::attach(&image) else { return };
    let holder = claim(&device.0);
    assert_eq!(users(&FileDevice::create(&device.0).unwrap_err()).by, Vec::<String>::new());
    // The device can be read, and written to with the override.
    drop(FileDevice::open(&device.0).unwrap());
    drop(FileOptions::new().with_override_use(true).open(&device.0).unwrap());
    drop(holder);
    let to = Destination::file(FileDevice::create(&device.0).unwrap());
    // The copy claims the device while it writes to it, so a second open is refused.
    let refused = FileOptions::new().open(&device.0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    let copy = CopyJob::new(Source::device(FileDevice::open(&from).unwrap()), to);
    copy.run().await.unwrap();
    drop(device);
    assert!(fs::read(&image).unwrap() == pattern(MIB));
}

#[test]
fn a_device_that_is_mounted_says_where() {
    let folder = Folder::new();
    let (image, place) = (folder.path("image"), folder.path("mounted here"));
    fs::write(&image, []).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(8 << 20).unwrap();
    fs::create_dir(&place).unwrap();
    let Some(device) = Loop::attach(&image) else { return };
    let runs = |name: &str, arguments: &[&str]| {
        let status = Command::new(name).args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let at = place.to_str().unwrap();
    if !runs("mkfs.ext4", &["-q", &device.0]) || !runs("mount", &["-r", &device.0, at]) {
        eprintln!("SKIPPED: nothing can be mounted here; run this as root, with e2fsprogs");
        return;
    }
    let by_device = FileDevice::create(&device.0);
    let by_file = FileDevice::create(&image);
    assert!(runs("umount", &[at]));
    let (by_device, by_file) = (by_device.unwrap_err(), by_file.unwrap_err());
    let told = format!("mounted at {}", at.replace(' ', "\\040"));
    assert_eq!(users(&by_device).by.join(", "), told);
    assert_eq!(by_device.to_string(), format!("it is in use: {told}"));
    // The file is refused because of its loop device; no mount claims the file.
    assert_eq!(users(&by_file).by, [format!("shown by {}, {told}", device.0)]);
    drop(device);
    // The kernel releases the loop device when no process has it open any more.
    let mut freed = FileDevice::create(&image);
    for _ in 0..6000 {
        if freed.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        freed = FileDevice::create(&image);
    }
    drop(freed.unwrap());
}

/// A claimed partition protects the whole disk, and a claimed disk its partitions.
#[test]
fn a_disk_of_which_a_partition_is_in_use_is_not_written_to() {
    let folder = Folder::new();
    let image = folder.path("image");
    fs::write(&image, vec![0; 4 * MIB]).unwrap();
    let Some(device) = Loop::attach(&image) else { return };
    // Not every kernel parses partition tables, but each can add a partition on request.
    let added = Command::new("addpart").args([&device.0, "1", "2048", "2048"]).status();
    let part = format!("{}p1", device.0);
    if !added.is_ok_and(|status| status.success()) || !Path::new(&part).exists() {
        eprintln!("SKIPPED: the system has no partitions of loop devices");
        return;
    }
    let holder = claim(&part);
    let error = FileDevice::create(&device.0).unwrap_err();
    users(&error);
    drop(holder);
    let holder = claim(&device.0);
    users(&FileDevice::create(&part).unwrap_err());
    drop(holder);
    drop(FileDevice::create(&part).unwrap());
}

#[test]
fn nothing_is_created_among_the_devices() {
    let folder = Folder::new();
    let name = format!("/dev/iscsi-copy-test-{}", std::process::id());
    let link = folder.path("link");
    std::os::unix::fs::symlink(&name, &link).unwrap();
    for path in [Path::new(&name), &link] {
        let created = FileDevice::create(path).map(drop);
        let is_there = fs::exists(&name).unwrap();
        drop(fs::remove_file(&name));
        assert!(!is_there, "{} made {name}", path.display());
        let error = created.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{}", path.display());
        assert!(error.to_string().contains("no such device"), "{error}");
    }
    // Outside of `/dev`, `create` through a link to a missing file creates that file.
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("target", &link).unwrap();
    drop(FileDevice::create(&link).unwrap());
    assert!(folder.path("target").is_file());
}

#[test]
fn a_name_that_is_no_name_of_a_file_makes_none() {
    let folder = Folder::new();
    for name in ["folder/", "folder/.", "missing/file", "folder/.."] {
        let path = format!("{}/{name}", folder.path("").display());
        assert!(FileDevice::create(&path).is_err(), "{name}");
    }
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 0);
    // Random-number devices and the memory of the host cannot be used as destinations.
    for device in ["/dev/urandom", "/dev/mem"] {
        if Path::new(device).exists() {
            let error = FileOptions::new().open(device).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{device}");
        }
    }
}
