//! Tests that a unit that stores nothing behaves like any other, except for the data that reads return.

use crate::rig::{NAME, Rig, pattern};
use bytes::Bytes;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;

/// Number of blocks of the disk: 1 TiB.
const BLOCKS: u64 = 1 << 31;

fn null() -> TargetConfig {
    TargetConfig::new(NAME, RamDisk::null(512, BLOCKS))
}

fn login(config: TargetConfig) -> Rig {
    Rig::login(config, &[("MaxRecvDataSegmentLength", "262144")])
}

/// Returns a command of 16 bytes, with LBA and length in the usual fields.
fn cdb(operation: u8, second: u8, lba: u64, length: u32) -> [u8; 16] {
    let mut cdb = [operation, second, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

/// Returns the data of a command, which must end with GOOD.
fn read(rig: &mut Rig, cdb: &[u8], length: u32) -> Vec<u8> {
    let command = rig.command(0xc0, cdb, length, &[]);
    rig.put(command);
    let pdus = rig.drain();
    let last = pdus.last().unwrap();
    assert!(last.has_status() && last.status() == 0, "{last:?}");
    pdus.iter().flat_map(|pdu| pdu.data.to_vec()).collect()
}

/// Sends a command with immediate data, sends the rest in response to R2Ts, and returns the status.
fn write(rig: &mut Rig, cdb: &[u8], length: u32, data: &[u8]) -> u8 {
    let immediate = data.len().min(65_536);
    let command =
        rig.command(if length == 0 { 0x80 } else { 0xa0 }, cdb, length, &data[..immediate]);
    rig.put(command);
    loop {
        let pdu = rig.next();
        if !pdu.is(Opcode::R2t) {
            return pdu.status();
        }
        rig.answer(&pdu, data, 65_536);
    }
}

#[test]
fn what_is_written_is_gone_and_reads_bring_zeros() {
    let mut rig = login(null());
    for (lba, blocks) in [(0, 1), (7, 128), (1 << 30, 4096), (BLOCKS - 1, 1), (BLOCKS - 6000, 6000)]
    {
        let length = blocks * 512;
        let data = pattern(length as usize);
        assert_eq!(write(&mut rig, &cdb(0x8a, 0, lba, blocks), length, &data), 0);
        let got = read(&mut rig, &cdb(0x88, 0, lba, blocks), length);
        assert!(got.len() == data.len() && got.iter().all(|byte| *byte == 0), "at {lba}");
    }
    let command = rig.command(0xc0, &cdb(0x88, 0, BLOCKS - 1, 2), 1024, &[]);
    rig.put(command);
    assert_eq!(rig.next().status(), 2, "behind the end");
    rig.assert_no_violations();
}

#[test]
fn it_is_a_thin_unit_of_which_nothing_is_mapped() {
    let mut rig = login(null());
    let capacity = read(&mut rig, &cdb(0x9e, 0x10, 0, 32), 32);
    assert_eq!(capacity[..12], [0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 2, 0]);
    assert_eq!(capacity[14] & 0xc0, 0xc0, "LBPME and LBPRZ");
    for page in [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2] {
        let told = rig.command(0xc0, &[0x12, 1, page, 0, 255, 0], 255, &[]);
        rig.put(told);
        assert_eq!(rig.next().status(), 0, "page {page:#x}");
    }
    let told = rig.command(0xc0, &[0x1a, 0, 0x3f, 0, 255, 0], 255, &[]);
    rig.put(told);
    assert_eq!(rig.next().data[4..7], [0x08, 0x12, 0x04], "a write cache");
    assert_eq!(write(&mut rig, &cdb(0x8a, 0, 4, 1), 512, &pattern(512)), 0);
    // A WRITE SAME from an LBA to the end takes no time, however many blocks it covers.
    assert_eq!(write(&mut rig, &cdb(0x93, 0, 4, 0), 512, &pattern(512)), 0);
    assert_eq!(write(&mut rig, &cdb(0x93, 0x08, 0, 0), 512, &[0; 512]), 0);
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0x7f; 4], &[0; 4]].concat();
    assert_eq!(write(&mut rig, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 24, &unmap), 0);
    let extent = read(&mut rig, &cdb(0x9e, 0x12, 9, 24), 24);
    assert_eq!(extent[8..21], [0, 0, 0, 0, 0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xf7, 1]);
    assert_eq!(write(&mut rig, &cdb(0x91, 0, 0, 0), 0, &[]), 0);
    assert_eq!(rig.target.disk(0).unwrap().flushes(), 1);
    rig.assert_no_violations();
}

#[test]
fn a_cache_that_loses_power_has_nothing_to_lose() {
    let mut rig = login(null());
    let disk = rig.target.disk(0).unwrap();
    disk.set_cache(Cache::Volatile);
    assert_eq!(write(&mut rig, &cdb(0x8a, 0, 1 << 20, 8), 4096, &pattern(4096)), 0);
    assert_eq!(disk.unflushed_blocks(), 0);
    rig.target.restart();
    let mut rig = rig.log_in_again();
    let ready = rig.command(0x80, &[0], 0, &[]);
    rig.put(ready);
    assert_eq!(rig.next().status(), 2, "the unit attention");
    assert!(disk.holds(1 << 29, &[0; 4096]));
}

/// Faults of blocks occur on a null disk as on other disks, and a wrong byte affects one response only.
#[test]
fn faults_meet_it_as_any_other() {
    let mut config = null();
    config.faults.push(Fault::wrong_byte(8..=8).times(1));
    config.faults.push(Fault::medium_error(100..=100));
    let mut rig = login(config);
    let wrong = read(&mut rig, &cdb(0x88, 0, 0, 16), 8192);
    let places: Vec<_> = (0..8192).filter(|at| wrong[*at] != 0).collect();
    assert_eq!(places, [8 * 512]);
    assert_eq!(read(&mut rig, &cdb(0x88, 0, 0, 16), 8192), [0; 8192]);
    let command = rig.command(0xc0, &cdb(0x88, 0, 96, 8), 4096, &[]);
    rig.put(command);
    assert_eq!(rig.next().status(), 2);
}

/// A fault that corrupts a digest does not change the data of later reads, although all reads share the data.
#[test]
fn a_corrupted_pdu_harms_no_other() {
    let mut config = null();
    config.faults.push(Fault::sending(Opcode::DataIn, 0, Effect::CorruptDataDigest));
    let keys = [("MaxRecvDataSegmentLength", "262144"), ("DataDigest", "CRC32C")];
    let mut rig = Rig::login(config, &keys);
    for nth in 0..2 {
        let command = rig.command(0xc0, &cdb(0x88, 0, nth, 8), 4096, &[]);
        rig.put(command);
    }
    let bytes: Bytes = rig.target.transmit(rig.id);
    let each = 48 + 4096 + 4;
    assert_eq!(bytes.len(), 2 * each);
    let [first, second] = [&bytes[48..each], &bytes[each + 48..]];
    assert_eq!(first[..4096], second[..4096]);
    assert_eq!(first[4099] ^ 0x5a, second[4099]);
    assert!(second[..4096].iter().all(|byte| *byte == 0));
}
