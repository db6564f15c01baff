//! Tests of the recognition, with a medium for each format. A medium has only the bytes that are read.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use iscsi_copy::Device;
use iscsi_initiator::device::{DeviceFuture, DeviceLimits};

use super::*;

const MIB: usize = 1 << 20;

/// A medium in memory. The number is the length of its blocks in bytes.
#[derive(Debug)]
struct Medium(Vec<u8>, u32);

impl Device for Medium {
    fn capacity(&self) -> u64 {
        self.0.len() as u64
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = DeviceLimits::default();
        limits.block_size = self.1;
        limits
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        assert!(offset.is_multiple_of(u64::from(self.1)), "a block is read twice");
        let start = usize::try_from(offset).unwrap();
        let found = self.0.get(start..start + buffer.len());
        Box::pin(async move {
            buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(buffer)
        })
    }

    fn write_at(&self, _: u64, _: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        unreachable!("a look writes nothing")
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        unreachable!("a look writes nothing")
    }
}

/// Returns a medium of 1 MiB with the given bytes at the given offsets. A negative offset counts from the end.
fn medium(pieces: &[(i64, &[u8])]) -> Vec<u8> {
    let mut medium = vec![0; MIB];
    for (at, bytes) in pieces {
        let at = if *at < 0 { MIB as i64 + at } else { *at };
        let at = usize::try_from(at).unwrap();
        medium[at..at + bytes.len()].copy_from_slice(bytes);
    }
    medium
}

async fn held_on(medium: Vec<u8>, block: u32) -> Option<String> {
    held(&Sample::read(Arc::new(Medium(medium, block)), 0, u64::MAX).await.unwrap())
}

type Case<'a> = (&'a [(i64, &'a [u8])], &'a str);

/// Checks that each medium is recognised as expected, with short and long logical blocks.
async fn are_known(cases: &[Case<'_>]) {
    for (pieces, expected) in cases {
        let medium = medium(pieces);
        assert_eq!(held_on(medium.clone(), 512).await.as_deref(), Some(*expected));
        assert_eq!(held_on(medium, 4096).await.as_deref(), Some(*expected), "with long blocks");
    }
}

fn le(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

#[tokio::test]
async fn a_file_system_is_known_by_its_name_and_size() {
    are_known(&[
        (
            &[(1080, &b"\x53\xef"[..]), (1028, &le(2560)), (1048, &[2]), (1144, b"root")][..],
            "an ext2 file system \"root\" of 10 MiB",
        ),
        (&[(1080, b"\x53\xef"), (1116, &[4])], "an ext3 file system"),
        (&[(1080, b"\x53\xef"), (1120, &[0x40])], "an ext4 file system"),
        (
            &[(0, b"XFSB\0\0\x10\0\0\0\0\0\0\0\x0a\0"), (108, b"data\0\0\0\0\0\0\0\0")],
            "an XFS file system \"data\" of 10 MiB",
        ),
        (
            &[(65_600, b"_BHRfS_M"), (65_648, &[0, 0, 0, 1]), (65_835, b"pool")],
            "a btrfs file system \"pool\" of 16 MiB",
        ),
        (
            &[(3, b"NTFS    "), (11, &[0, 2]), (40, &[0, 8]), (510, &[0x55, 0xaa])],
            "an NTFS file system of 1 MiB",
        ),
        (&[(3, b"EXFAT   "), (72, &[0, 8]), (108, &[9])], "an exFAT file system of 1 MiB"),
        (
            &[
                (11, &[0, 2]),
                (0x20, &[0, 8]),
                (71, b"EFI        FAT32   "),
                (446, &[0x80, 0, 0, 0, 1]),
                (510, &[0x55, 0xaa]),
            ],
            "a FAT file system \"EFI\" of 1 MiB",
        ),
        (&[(43, b"NO NAME    FAT16   ")], "a FAT file system"),
        (
            &[(32_769, b"CD001"), (32_808, b"DEBIAN  "), (32_848, &le(512)), (32_896, &[0, 8])],
            "an ISO 9660 file system \"DEBIAN\" of 1 MiB",
        ),
        (&[(1024, b"\x10\x20\xf5\xf2")], "an F2FS file system"),
    ])
    .await;
}

#[tokio::test]
async fn what_else_takes_a_whole_device_is_known() {
    are_known(&[
        (
            &[(512, b"LABELONE"), (532, &[32]), (536, b"LVM2 001"), (576, &[0, 0, 0x40])],
            "a physical volume of LVM of 4 MiB",
        ),
        (&[(0, b"LUKS\xba\xbe\0\x02"), (24, b"secret")], "a volume of LUKS \"secret\""),
        (&[(0, b"LUKS\xba\xbe\0\x01"), (24, b"aes")], "a volume of LUKS"),
        (&[(4096, &le(0xa92b_4efc)), (4128, b"host:0")], "a member of a RAID (md) \"host:0\""),
        (&[(0, &le(0xa92b_4efc)), (32, b"host:1")], "a member of a RAID (md) \"host:1\""),
        (&[(-8192, &le(0xa92b_4efc)), (-8160, b"host:2")], "a member of a RAID (md) \"host:2\""),
        (&[(-65_536, &le(0xa92b_4efc))], "a member of a RAID (md)"),
        (
            &[(4086, b"SWAPSPACE2"), (1028, &le(2559)), (1052, b"swap0")],
            "a swap area \"swap0\" of 10 MiB",
        ),
        (&[(65_526, b"SWAPSPACE2"), (1028, &le(159))], "a swap area of 10 MiB"),
        (
            &[
                (16_384, &[1, 1]),
                (16_600, b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01\0\0\0\x04tank"),
                (16_700, b"pool_guid"),
            ],
            "a member of a ZFS pool \"tank\"",
        ),
        (&[(0, b"QFI\xfb\0\0\0\x03")], "a qcow2 image"),
        (&[(0, b"\x1f\x8b\x08")], "a file compressed by gzip"),
    ])
    .await;
}

#[tokio::test]
async fn zeros_and_noise_are_nothing() {
    assert_eq!(held_on(vec![0; MIB], 512).await, None);
    let noise: Vec<u8> = (0..MIB).map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes()[2]).collect();
    assert_eq!(held_on(noise, 512).await, None);
}

#[tokio::test]
async fn partition_tables_are_counted() {
    let entry = |kind: u8| [&[0, 0, 0, 0, kind, 0, 0, 0][..], &[0, 8, 0, 0, 0, 8, 0, 0]].concat();
    let (linux, protective, active) =
        (entry(0x83), entry(0xee), [&[0x80], &entry(7)[1..]].concat());
    let end: &[u8] = &[0x55, 0xaa];
    for (pieces, expected) in [
        (
            &[(446, &linux[..]), (462, &active), (510, end)][..],
            Some("an MBR partition table of 2 partitions"),
        ),
        (&[(446, &linux), (510, end)], Some("an MBR partition table of 1 partition")),
        (&[(446, &protective), (510, end)], Some("an MBR that stands for a GPT partition table")),
        (
            &[(446, &protective), (510, end), (512, b"EFI PART"), (1024, &[1]), (1152, &[1])],
            Some("a GPT partition table of 2 partitions"),
        ),
        (&[(4096, b"EFI PART")], Some("a GPT partition table")),
        (&[(-512, b"EFI PART")], Some("the second header of a GPT partition table")),
        (&[(-4096, b"EFI PART")], Some("the second header of a GPT partition table")),
        // Media with code in place of partition entries, or without entries, have no partition table.
        (&[(446, &[0x31; 64]), (510, end)], None),
        (&[(510, end)], None),
        (&[(446, &linux)], None),
    ] {
        assert_eq!(held_on(medium(pieces), 512).await.as_deref(), expected);
    }
    for block in [512, 4096] {
        let sample = Sample::of_start(medium(&[(block, b"EFI PART")]).into());
        assert_eq!(gpt_block_size(&sample), u64::try_from(block).ok());
    }
}

#[tokio::test]
async fn a_part_is_looked_at_where_it_begins() {
    let place = 100_000;
    let medium = medium(&[(0, b"XFSB"), (place, b"LUKS\xba\xbe\0\x01")]);
    let device = Arc::new(Medium(medium, 512));
    let place = u64::try_from(place).unwrap();
    let sample = Sample::read(device.clone(), place, u64::MAX).await.unwrap();
    assert_eq!(held(&sample).as_deref(), Some("a volume of LUKS"));
    assert_eq!(sample.first_nonzero(), Some(0));
    // The copy does not overwrite the bytes after its end, so they are not read.
    let sample = Sample::read(device, place - 4096, 4096).await.unwrap();
    assert_eq!(sample.bytes(0, 8), Some(&[0; 8][..]));
    assert!(sample.bytes(16 << 10, 1).is_none());
}

#[tokio::test]
async fn a_medium_of_any_length_can_be_looked_at() {
    for len in [0, 1, 511, 512, 4096, 4097, 12 << 10, 65_535, 65_536, 70_000] {
        assert_eq!(held_on(vec![0; len], 1).await, None, "{len}");
    }
}
