//! Recognises file systems, and other formats of a whole device or partition: LVM, RAID, encryption, swap.

use super::held::{Held, be32, be64, le16, le32, le64};
use super::sample::Place::{self, Start};
use super::sample::{MD_0, MD_1, Sample};

const NTFS: &str = "an NTFS file system";
const EXFAT: &str = "an exFAT file system";
const FAT: &str = "a FAT file system";
const BITLOCKER: &str = "a volume of BitLocker";
const REFS: &str = "an ReFS file system";

/// Formats whose label is not read. For each: the name, the offset of the signature, the signature.
const MARKS: [(&str, u64, &[u8]); 14] = [
    (BITLOCKER, 3, b"-FVE-FS-"),
    (REFS, 3, b"ReFS\0\0\0\0"),
    ("a disk of Oracle ASM", 32, b"ORCLDISK"),
    ("an APFS container", 32, b"NXSB"),
    ("a device of Ceph", 0, b"bluestore block device"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an HFS+ file system", 1024, b"H+\0\x04"),
    ("an HFS+ file system", 1024, b"HX\0\x05"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    ("a GFS2 file system", 65_536, b"\x01\x16\x19\x70\0\0\0\x01"),
    ("a ReiserFS file system", 65_588, b"ReIsEr"),
    (
        "a device of bcache or bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    (
        "a bcachefs file system",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
];

/// Returns all formats that are recognised in the sample.
pub(super) fn all(sample: &Sample) -> Vec<Held> {
    let kinds = [ext, xfs, btrfs, ntfs, exfat, fat, lvm, luks, md, swap, zfs, iso9660];
    let mut found: Vec<Held> = kinds.iter().filter_map(|kind| kind(sample)).collect();
    let is_there =
        |(_, at, mark): &&(&str, u64, &[u8])| sample.bytes(*at, mark.len()) == Some(mark);
    found.extend(MARKS.iter().filter(is_there).map(|(kind, ..)| Held::new(kind)));
    found
}

/// Returns whether the first sector of this format ends with the signature of an MBR.
pub(super) fn is_boot_sector(kind: &str) -> bool {
    [NTFS, EXFAT, FAT, BITLOCKER, REFS].contains(&kind)
}

fn ext(sample: &Sample) -> Option<Held> {
    let at = |offset: usize, len| sample.at(Start(1024), offset, len);
    if at(56, 2)? != [0x53, 0xef] {
        return None;
    }
    let (compatible, incompatible) = (le32(at(92, 4))?, le32(at(96, 4))?);
    let kind = match () {
        // The incompatible features extents, 64 bits and flexible groups exist only in ext4.
        () if incompatible & (0x40 | 0x80 | 0x200) != 0 => "an ext4 file system",
        () if compatible & 4 != 0 => "an ext3 file system",
        () => "an ext2 file system",
    };
    let high = if incompatible & 0x80 == 0 { 0 } else { le32(at(0x150, 4))? };
    let bytes = shifted((high << 32) | le32(at(4, 4))?, le32(at(24, 4))?.saturating_add(10));
    Some(Held::new(kind).with_label(at(120, 16)).with_bytes(bytes))
}

fn xfs(sample: &Sample) -> Option<Held> {
    if sample.bytes(0, 4)? != b"XFSB" {
        return None;
    }
    let bytes = be32(sample.bytes(4, 4))?.checked_mul(be64(sample.bytes(8, 8))?);
    Some(Held::new("an XFS file system").with_label(sample.bytes(108, 12)).with_bytes(bytes))
}

fn btrfs(sample: &Sample) -> Option<Held> {
    let at = |offset: usize, len| sample.at(Start(64 << 10), offset, len);
    if at(64, 8)? != b"_BHRfS_M" {
        return None;
    }
    let held = Held::new("a btrfs file system").with_label(at(0x12b, 256));
    Some(held.with_bytes(le64(at(0x70, 8))))
}

fn ntfs(sample: &Sample) -> Option<Held> {
    if sample.bytes(3, 8)? != b"NTFS    " {
        return None;
    }
    let bytes = le16(sample.bytes(11, 2))?.checked_mul(le64(sample.bytes(40, 8))?);
    Some(Held::new(NTFS).with_bytes(bytes))
}

fn exfat(sample: &Sample) -> Option<Held> {
    if sample.bytes(3, 8)? != b"EXFAT   " {
        return None;
    }
    let shift = u64::from(*sample.bytes(108, 1)?.first()?);
    Some(Held::new(EXFAT).with_bytes(shifted(le64(sample.bytes(72, 8))?, shift)))
}

fn fat(sample: &Sample) -> Option<Held> {
    let label = if sample.bytes(82, 5)? == b"FAT32" {
        71
    } else if [b"FAT12", b"FAT16"].iter().any(|mark| sample.bytes(54, 5) == Some(*mark)) {
        43
    } else {
        return None;
    };
    let sectors = le16(sample.bytes(0x13, 2)).filter(|sectors| *sectors > 0);
    let sectors = sectors.or_else(|| le32(sample.bytes(0x20, 4)))?;
    let bytes = le16(sample.bytes(11, 2))?.checked_mul(sectors);
    let label = sample.bytes(label, 11).filter(|label| *label != b"NO NAME    ");
    Some(Held::new(FAT).with_label(label).with_bytes(bytes))
}

/// Recognises LVM. The label may be in any of the first four sectors.
fn lvm(sample: &Sample) -> Option<Held> {
    let is_label = |sector: &u64| {
        let at = |offset: usize, len| sample.at(Start(sector * 512), offset, len);
        at(0, 8) == Some(b"LABELONE") && at(24, 8) == Some(b"LVM2 001")
    };
    let sector = (0..4).find(is_label)?;
    let at = |offset: usize, len| sample.at(Start(sector * 512), offset, len);
    let header = usize::try_from(le32(at(20, 4))?).ok()?;
    let bytes = le64(at(header.checked_add(32)?, 8));
    Some(Held::new("a physical volume of LVM").with_bytes(bytes))
}

fn luks(sample: &Sample) -> Option<Held> {
    if sample.bytes(0, 6)? != b"LUKS\xba\xbe" {
        return None;
    }
    // Only version 2 of the LUKS header has a label.
    let label = sample.bytes(24, 48).filter(|_| sample.bytes(6, 2) == Some(&[0, 2]));
    Some(Held::new("a volume of LUKS").with_label(label))
}

/// Recognises a RAID of Linux md. The versions 1.1, 1.2, 1.0 and 0.90 have the superblock in different places.
fn md(sample: &Sample) -> Option<Held> {
    const MAGIC: &[u8] = &0xa92b_4efc_u32.to_le_bytes();
    let is_there = |place: &Place| sample.at(*place, 0, 4) == Some(MAGIC);
    let kind = "a member of a RAID (md)";
    let named = [Start(0), Start(4096), MD_1].into_iter().find(is_there);
    if let Some(place) = named {
        return Some(Held::new(kind).with_label(sample.at(place, 32, 32)));
    }
    is_there(&MD_0).then(|| Held::new(kind))
}

fn swap(sample: &Sample) -> Option<Held> {
    let page = [4 << 10, 64 << 10].into_iter().find(|page| {
        let mark = sample.bytes(page - 10, 10);
        mark == Some(b"SWAPSPACE2") || mark == Some(b"SWAP-SPACE")
    })?;
    let pages = le32(sample.bytes(1028, 4)).map(|last| last + 1);
    let bytes = pages.and_then(|pages| pages.checked_mul(page));
    Some(Held::new("a swap area").with_label(sample.bytes(1052, 16)).with_bytes(bytes))
}

/// Recognises ZFS. The first label begins with a list of names and values in XDR.
fn zfs(sample: &Sample) -> Option<Held> {
    const NAME: &[u8] = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01";
    let list = sample.bytes(16 << 10, 1024)?;
    let find = |text: &[u8]| list.windows(text.len()).position(|window| window == text);
    if list.first() != Some(&1) || find(b"pool_guid").is_none() {
        return None;
    }
    let name = find(NAME).and_then(|at| {
        let at = at + NAME.len();
        let len = usize::try_from(be32(list.get(at..at + 4))?).ok()?;
        list.get(at + 4..(at + 4).checked_add(len)?)
    });
    Some(Held::new("a member of a ZFS pool").with_label(name))
}

fn iso9660(sample: &Sample) -> Option<Held> {
    let at = |offset: usize, len| sample.at(Start(32 << 10), offset, len);
    if at(1, 5)? != b"CD001" {
        return None;
    }
    let bytes = le16(at(128, 2))?.checked_mul(le32(at(80, 4))?);
    Some(Held::new("an ISO 9660 file system").with_label(at(40, 32)).with_bytes(bytes))
}

/// Returns `number` times two to the power of `by`, or `None` on overflow.
fn shifted(number: u64, by: u64) -> Option<u64> {
    let by = u32::try_from(by).ok().filter(|by| *by < 64)?;
    number.checked_mul(1 << by)
}
