//! What makes a block device of this host the same after it was started again.

use std::fs;
use std::path::Path;

/// Where the kernel lists block devices by their numbers.
const SYSFS: &str = "/sys/dev/block";
/// Another one each time the host is started.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// What says which disk it is, in the folder of a whole disk: NVMe, SCSI, device mapper, virtio, loop.
const NAMES: [&str; 6] =
    ["wwid", "device/wwid", "dm/uuid", "serial", "device/serial", "loop/backing_file"];

/// What a block device is called, whatever its number is by now. One of which the system knows no name has
/// its number, which goes to another disk when the host is started again: it holds until then.
pub(crate) fn name(number: u64) -> String {
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let folder = Path::new(SYSFS).join(format!("{major}:{minor}"));
    named(&folder).unwrap_or_else(|| {
        let boot = fs::read_to_string(BOOT).unwrap_or_default();
        format!("block device {major}:{minor} since boot {}", boot.trim())
    })
}

fn named(folder: &Path) -> Option<String> {
    // A link, of which the parent is not that of what it leads to.
    let folder = fs::canonicalize(folder).ok()?;
    let read = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let Some(partition) = read(&folder.join("partition")) else {
        let name = NAMES.iter().find_map(|name| read(&folder.join(name)))?;
        return Some(format!("block device {name}"));
    };
    // Partitions are folders in that of their disk.
    let start = read(&folder.join("start")).unwrap_or_default();
    let disk = NAMES.iter().find_map(|name| read(&folder.parent()?.join(name)))?;
    Some(format!("block device {disk} partition {partition} from sector {start} on"))
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

    #[test]
    fn a_number_alone_holds_until_the_host_is_started_again() {
        let name = name(nix::sys::stat::makedev(4095, 1_048_575));
        assert!(name.starts_with("block device 4095:1048575 since boot "), "{name}");
        assert!(name.len() > "block device 4095:1048575 since boot ".len(), "{name}");
    }
}
