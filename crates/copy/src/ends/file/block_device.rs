//! Names block devices by properties that stay the same when the host restarts.

use std::fs::{self, Metadata};
use std::path::Path;

use super::inode;

/// Folder of the kernel's block devices, by device number.
const SYSFS: &str = "/sys/dev/block";
/// A file whose text differs after each start of the host.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Files that identify a disk, in the folder of a whole disk: NVMe, SCSI, device mapper, virtio.
const NAMES: [&str; 5] = ["wwid", "device/wwid", "dm/uuid", "serial", "device/serial"];

/// Returns the name of a block device, independent of its current device number. A device without a name in
/// the system is named by its number instead. That name is valid until the host restarts or the disk is
/// detached, because another disk may then get the number.
pub(crate) fn name(number: u64) -> String {
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let folder = Path::new(SYSFS).join(format!("{major}:{minor}"));
    // The entry is a symbolic link: only the real path contains the folder of the disk.
    let folder = fs::canonicalize(folder).ok();
    let named = folder.as_deref().and_then(named);
    named.unwrap_or_else(|| numbered(folder.as_deref(), &format!("{major}:{minor}")))
}

fn named(folder: &Path) -> Option<String> {
    let Some(partition) = read(&folder.join("partition")) else {
        return Some(format!("block device {}", disk_name(folder)?));
    };
    // The name of the disk is in the parent folder: the folder of a partition lies in the folder of its disk.
    let start = read(&folder.join("start")).unwrap_or_default();
    let disk = disk_name(folder.parent()?)?;
    Some(format!("block device {disk} partition {partition} from sector {start} on"))
}

fn disk_name(folder: &Path) -> Option<String> {
    NAMES.iter().find_map(|name| read(&folder.join(name))).or_else(|| loop_name(folder))
}

/// Returns the name of a loop device, which shows a window of a file. The path does not identify that file;
/// its inode number and birth time do. Where the file system does not report the birth time, the result is
/// `None`, since a removed file's inode number is reused. In another mount namespace the path may lead to
/// another file.
fn loop_name(folder: &Path) -> Option<String> {
    let folder = folder.join("loop");
    let [path, offset, size_limit] =
        ["backing_file", "offset", "sizelimit"].map(|name| read(&folder.join(name)));
    let (path, offset, size_limit) = (path?, offset?, size_limit?);
    let file = fs::metadata(path).ok().filter(Metadata::is_file)?;
    let (place, made) = (inode::place(&file), inode::made(&file)?);
    Some(format!("loop offset {offset} sizelimit {size_limit} of {place} {made}"))
}

fn numbered(folder: Option<&Path>, number: &str) -> String {
    let boot = read(Path::new(BOOT)).unwrap_or_default();
    // Each attached disk gets the next sequence number. For a partition, the number is in the folder of its
    // disk.
    let folders = folder.into_iter().flat_map(|folder| folder.ancestors().take(2));
    let sequence = folders.map(|folder| folder.join("diskseq")).find_map(|path| read(&path));
    let sequence = sequence.map(|sequence| format!(", disk {sequence}")).unwrap_or_default();
    format!("block device {number} since boot {boot}{sequence}")
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_its_name_and_a_partition_that_of_its_disk() {
        let root = std::env::temp_dir().join(format!("iscsi-copy-sysfs-{}", std::process::id()));
        let (disk, part) = (root.join("sda"), root.join("sda/sda1"));
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(part.join("start"), "2048\n").unwrap();
        let before = (named(&disk), named(&part));
        fs::write(disk.join("wwid"), "\n").unwrap();
        fs::write(disk.join("device/wwid"), "naa.6001\n").unwrap();
        let after = (named(&disk), named(&part));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(before, (None, None));
        assert_eq!(after.0.as_deref(), Some("block device naa.6001"));
        let expected = "block device naa.6001 partition 1 from sector 2048 on";
        assert_eq!(after.1.as_deref(), Some(expected));
    }

    /// The test requires a folder of temporary files that reports birth times.
    #[test]
    fn a_loop_device_is_what_it_shows_of_the_file_that_is_there() {
        let root = std::env::temp_dir().join(format!("iscsi-copy-loop-{}", std::process::id()));
        let (disk, part, image) =
            (root.join("loop0"), root.join("loop0/loop0p1"), root.join("image"));
        fs::create_dir_all(disk.join("loop")).unwrap();
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(part.join("start"), "2048\n").unwrap();
        fs::write(disk.join("loop/backing_file"), format!("{}\n", image.display())).unwrap();
        let attach = |offset: &str, size_limit: &str| {
            fs::write(disk.join("loop/offset"), offset).unwrap();
            fs::write(disk.join("loop/sizelimit"), size_limit).unwrap();
            named(&disk)
        };
        let absent = attach("0\n", "0\n");
        fs::write(&image, "").unwrap();
        let known = ["0\n", "512\n"].map(|at| ["0\n", "4096\n"].map(|limit| attach(at, limit)));
        let (again, of_part) = (attach("0\n", "0\n"), named(&part));
        let moved = root.join("moved");
        fs::rename(&image, &moved).unwrap();
        fs::write(disk.join("loop/backing_file"), format!("{}\n", moved.display())).unwrap();
        let elsewhere = named(&disk);
        // The old file still exists, so that the new one gets another inode number.
        let other = root.join("other");
        fs::write(&other, "").unwrap();
        fs::rename(&other, &moved).unwrap();
        let recreated = named(&disk);
        fs::remove_file(disk.join("loop/offset")).unwrap();
        let unknown = named(&disk);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((absent, unknown), (None, None));
        let mut known: Vec<_> = known.into_iter().flatten().map(Option::unwrap).collect();
        assert_eq!(again.as_ref(), Some(&known[0]));
        assert_eq!(elsewhere, again, "a path is no part of it");
        let expected = format!("{} partition 1 from sector 2048 on", known[0]);
        assert_eq!(of_part, Some(expected));
        known.push(recreated.unwrap());
        known.sort();
        known.dedup();
        assert_eq!(known.len(), 5, "{known:?}");
    }

    #[test]
    fn a_number_is_of_another_disk_when_that_was_attached_anew() {
        let root = std::env::temp_dir().join(format!("iscsi-copy-diskseq-{}", std::process::id()));
        let (disk, part) = (root.join("loop0"), root.join("loop0/loop0p1"));
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        let names = |sequence: Option<&str>| {
            if let Some(number) = sequence {
                fs::write(disk.join("diskseq"), number).unwrap();
            }
            [numbered(Some(&disk), "7:0"), numbered(Some(&part), "259:0")]
        };
        let all = [names(None), names(Some("9\n")), names(Some("10\n"))];
        fs::remove_dir_all(&root).unwrap();
        for [disk, part] in &all {
            assert!(disk.starts_with("block device 7:0 since boot "), "{disk}");
            assert!(part.starts_with("block device 259:0 since boot "), "{part}");
        }
        let [_, [ninth, part_of_ninth], [tenth, part_of_tenth]] = &all;
        assert!(ninth.ends_with(", disk 9") && part_of_ninth.ends_with(", disk 9"), "{all:?}");
        assert!(tenth.ends_with(", disk 10") && part_of_tenth.ends_with(", disk 10"), "{all:?}");
    }

    #[test]
    fn a_number_alone_holds_until_the_host_is_started_again() {
        let name = name(nix::sys::stat::makedev(4095, 1_048_575));
        assert!(name.starts_with("block device 4095:1048575 since boot "), "{name}");
        assert!(name.len() > "block device 4095:1048575 since boot ".len(), "{name}");
    }
}
