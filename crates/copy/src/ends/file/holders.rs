//! Finds the users of a block device or a file of this host.
//!
//! Design: `docs/design/destinations.md`.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{major, minor};
use thiserror::Error as ThisError;

/// Folders of the kernel's block devices, by number and by name.
const BY_NUMBER: &str = "/sys/dev/block";
const BY_NAME: &str = "/sys/block";
const MOUNTS: &str = "/proc/self/mountinfo";
const SWAPS: &str = "/proc/swaps";

/// The reason why a block device or a file is refused for writing: it is in use.
#[derive(Clone, Debug, Eq, PartialEq, ThisError)]
#[non_exhaustive]
pub struct InUse {
    /// The users that the system reports, each as a phrase such as "mounted at /srv" or "a part of /dev/md0".
    pub by: Vec<String>,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by.is_empty() {
            return f.write_str("it is in use: another program has claimed it");
        }
        write!(f, "it is in use: {}", self.by.join(", "))
    }
}

impl From<InUse> for io::Error {
    fn from(in_use: InUse) -> Self {
        Self::new(ErrorKind::ResourceBusy, in_use)
    }
}

impl InUse {
    /// Returns the error for a block device that is claimed, with its known users.
    pub(crate) fn of_device(number: u64) -> Self {
        let (mounts, swaps) = (read(MOUNTS), read(SWAPS));
        let folder = fs::canonicalize(Path::new(BY_NUMBER).join(name_of(number)));
        let Ok(folder) = folder else { return Self { by: users(number, &mounts, &swaps) } };
        let mut by = users(number, &mounts, &swaps);
        by.extend(holders(&folder));
        for part in parts(&folder) {
            let Some(number) = number_in(&part) else { continue };
            let users = users(number, &mounts, &swaps).into_iter().chain(holders(&part));
            by.extend(users.map(|user| format!("its partition {} is {user}", name(&part))));
        }
        if by.is_empty()
            && folder.join("partition").exists()
            && let Some(disk) = folder.parent()
        {
            by.extend(holders(disk).map(|user| format!("its disk {} is {user}", name(disk))));
        }
        Self { by }
    }
}

/// Checks that no loop device shows this file or block device. A loop device does not claim what it shows, so
/// opening the file exclusively would succeed nevertheless.
pub(crate) fn check_loop_devices(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(());
    }
    let entries = fs::read_dir(BY_NAME).into_iter().flatten().flatten();
    let loops = entries.filter_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let backing = fs::metadata(backing.trim_end_matches('\n')).ok()?;
        is_same(&backing, metadata).then(|| entry.path())
    });
    let mounts = read(MOUNTS);
    let by = loops.map(|folder| {
        let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
        let mounts = mounted_at(&mounts, number.trim(), 0);
        let shown = format!("shown by {}", name(&folder));
        std::iter::once(shown).chain(mounts).collect::<Vec<_>>().join(", ")
    });
    let by: Vec<_> = by.collect();
    if by.is_empty() { Ok(()) } else { Err(InUse { by }.into()) }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let (kind, its_kind) = (one.file_type(), other.file_type());
    if kind.is_block_device() && its_kind.is_block_device() {
        return one.rdev() == other.rdev();
    }
    kind.is_file() && its_kind.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns the users of one device, without the users of its partitions.
fn users(number: u64, mounts: &str, swaps: &str) -> Vec<String> {
    let mut users = mounted_at(mounts, &name_of(number), number);
    if is_swap(swaps, number) {
        users.push("used for swapping".to_owned());
    }
    users
}

/// Returns the mount points of a device, each once (proc_pid_mountinfo(5)). A file system on several devices
/// has its own device number, and its mount source is only one of these devices. So both the number and the
/// source are compared; on the other devices such a file system is not found.
fn mounted_at(mounts: &str, dev: &str, number: u64) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(its_dev), Some(place)) = (words.nth(2), words.nth(1)) else { continue };
        let source = words.skip_while(|word| *word != "-").nth(2);
        let is_source = || {
            let source = source.filter(|source| source.starts_with('/'));
            number > 0 && source.and_then(device_number) == Some(number)
        };
        let told = format!("mounted at {place}");
        if (its_dev == dev || is_source()) && !places.contains(&told) {
            places.push(told);
        }
    }
    places
}

/// Returns whether a device is used for swapping (proc_swaps(5)).
fn is_swap(swaps: &str, number: u64) -> bool {
    let paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.into_iter().any(|path| device_number(path) == Some(number))
}

fn device_number(path: &str) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| metadata.rdev())
}

/// Returns the devices that this device is a part of.
fn holders(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder.join("holders")).into_iter().flatten().flatten();
    entries.map(|entry| format!("a part of {}", name(&entry.path())))
}

/// Returns the partitions of a disk.
fn parts(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("partition").exists())
}

/// Returns the path of the device in this sysfs folder: the path is `/dev/mapper/NAME` for a device of the
/// device mapper, otherwise `/dev/NAME`.
fn name(folder: &Path) -> String {
    if let Ok(name) = fs::read_to_string(folder.join("dm/name")) {
        return format!("/dev/mapper/{}", name.trim());
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    // An exclamation mark in sysfs stands for a slash.
    format!("/dev/{}", name.replace('!', "/"))
}

fn number_in(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn name_of(number: u64) -> String {
    format!("{}:{}", major(number), minor(number))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_each_place_once() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      23 22 8:17 /sub /srv/a\\040b rw - xfs /dev/sdb1 rw\n\
                      24 22 8:17 / /srv/c rw - xfs /dev/sdb1 rw\n\
                      25 22 8:17 / /srv/c rw - xfs /dev/sdb1 rw\n\
                      26 22 0:5 / /proc rw - proc proc rw\nnonsense\n";
        let at = |dev| mounted_at(mounts, dev, 0);
        assert_eq!(at("8:1"), ["mounted at /"]);
        assert_eq!(at("8:17"), ["mounted at /srv/a\\040b", "mounted at /srv/c"]);
        assert!(at("8:2").is_empty());
    }

    #[test]
    fn who_holds_a_device_is_told_by_the_names_that_people_know() {
        let root = std::env::temp_dir().join(format!("iscsi-copy-holders-{}", std::process::id()));
        let disk = root.join("sda");
        for folder in ["sda/sda1", "sda/queue", "sda/holders/dm-3/dm", "sda/holders/md127"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(disk.join("holders/dm-3/dm/name"), "vg-data\n").unwrap();
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        fs::write(disk.join("sda1/dev"), "8:1\n").unwrap();
        let mut held: Vec<_> = holders(&disk).collect();
        held.sort();
        let parts: Vec<_> = parts(&disk).collect();
        let number = number_in(&parts[0]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(held, ["a part of /dev/mapper/vg-data", "a part of /dev/md127"]);
        assert_eq!(parts, [disk.join("sda1")]);
        assert_eq!(number, Some(nix::sys::stat::makedev(8, 1)));
        assert_eq!(name(Path::new("/sys/block/cciss!c0d0")), "/dev/cciss/c0d0");
    }

    #[test]
    fn nothing_known_is_said_so() {
        let error = io::Error::from(InUse { by: Vec::new() });
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert_eq!(error.to_string(), "it is in use: another program has claimed it");
    }
}
