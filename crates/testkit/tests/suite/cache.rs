//! Tests of the state after a loss of power, and of the unit attentions about this and other changes.

use crate::rig::{NAMES, Rig, config, pattern};
use iscsi_testkit::config::Presence;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::fault::Fault;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, Pdu};
use iscsi_testkit::scsi::{AccessState, Sense, Unit, status};

const FUA: u8 = 0x08;
const IMMED: u8 = 0x02;

/// Logs in to a target whose unit has a volatile cache, and returns the rig and the disk.
fn volatile() -> (Rig, RamDisk) {
    let rig = Rig::login(config(), &[]);
    let disk = rig.target.disk(0).unwrap();
    disk.set_cache(Cache::Volatile);
    (rig, disk)
}

/// Logs in to the same target again. The nexus is the same, unless the test has changed `rig.isid`.
fn log_in_again(rig: &mut Rig) {
    rig.id = rig.target.accept();
    (rig.framing, rig.exp_stat_sn, rig.tsih) = (Framing::PLAIN, 0, 0);
    assert_eq!(rig.login_request(1, 3, FINAL, &NAMES).login_status(), 0);
}

fn run(rig: &mut Rig, flags: u8, cdb: &[u8], edtl: u32, data: &[u8]) -> Pdu {
    let command = rig.command(flags, cdb, edtl, data);
    rig.put(command);
    rig.next()
}

/// Writes one block that is filled with `byte`.
fn write(rig: &mut Rig, lba: u8, byte: u8, flags: u8) {
    let cdb = [0x2a, flags, 0, 0, 0, lba, 0, 0, 1];
    assert_eq!(run(rig, 0xa0, &cdb, 512, &[byte; 512]).status(), status::GOOD);
}

fn synchronize(rig: &mut Rig, lba: u8, blocks: u8, flags: u8) {
    let cdb = [0x35, flags, 0, 0, 0, lba, 0, 0, blocks];
    assert_eq!(run(rig, 0x80, &cdb, 0, &[]).status(), status::GOOD);
}

/// Returns the sense of TEST UNIT READY; `None` if it ends with GOOD.
fn attention(rig: &mut Rig) -> Option<Sense> {
    let response = run(rig, 0x80, &[0], 0, &[]);
    let fixed = response.data.get(2..)?;
    Some(Sense::new(fixed[2], fixed[12], fixed[13]))
}

/// Returns the device-specific parameter, and byte 2 of the caching page (SPC-4 §7.5.5, SBC-3 §6.4.5).
fn mode(rig: &mut Rig) -> (u8, u8) {
    let page = run(rig, 0xc0, &[0x1a, 0, 0x08, 0, 64], 64, &[]).data;
    (page[2], page[6])
}

#[test]
fn a_restart_loses_what_was_not_flushed() {
    let (mut rig, disk) = volatile();
    for lba in 0..4 {
        write(&mut rig, lba, 1, 0);
    }
    synchronize(&mut rig, 0, 0, 0);
    for lba in 0..4 {
        write(&mut rig, lba, 2, 0);
    }
    assert_eq!(read(&mut rig, 3), [2; 512], "a read sees what is in the cache");
    synchronize(&mut rig, 1, 1, 0);
    synchronize(&mut rig, 2, 1, IMMED);
    write(&mut rig, 3, 3, FUA);
    assert_eq!(disk.unflushed_blocks(), 2);
    let old = rig.id;
    rig.target.restart();
    assert!(rig.target.is_closed(old) && rig.target.sessions() == 0);
    let left: Vec<_> = (0..4).map(|lba| disk.read(lba * 512, 1)[0]).collect();
    assert_eq!(left, [1, 2, 1, 3], "flushed; flushed as a range; IMMED promises nothing; FUA");
}

fn read(rig: &mut Rig, lba: u8) -> Vec<u8> {
    let read = rig.read(lba, 1);
    rig.put(read);
    rig.next().data.to_vec()
}

/// SBC-3 §4.15: a read with FUA returns the data on the medium, so the cache is written to the medium first.
#[test]
fn a_read_with_fua_makes_its_blocks_durable() {
    let (mut rig, disk) = volatile();
    write(&mut rig, 0, 1, 0);
    write(&mut rig, 1, 1, 0);
    let cdb = [0x28, FUA, 0, 0, 0, 1, 0, 0, 1];
    assert_eq!(run(&mut rig, 0xc0, &cdb, 512, &[]).data, &[1; 512][..]);
    disk.lose_power();
    assert!(disk.holds(0, &[0; 512]) && disk.holds(512, &[1; 512]));
}

#[test]
fn unmap_and_write_same_wait_in_the_cache_too() {
    let (mut rig, disk) = volatile();
    disk.write(0, &pattern(1024));
    let same = [0x41, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(run(&mut rig, 0xa0, &same, 512, &[9; 512]).status(), status::GOOD);
    let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24];
    assert_eq!(run(&mut rig, 0xa0, &unmap, 24, &list).status(), status::GOOD);
    assert!(disk.holds(0, &[9; 512]) && disk.holds(512, &[0; 512]));
    disk.lose_power();
    assert!(disk.holds(0, &pattern(1024)));
}

/// MODE SENSE reports the kind of write cache, and the unit accepts FUA only if it reports DPOFUA.
#[test]
fn mode_sense_tells_the_cache() {
    let (mut rig, disk) = volatile();
    assert_eq!(mode(&mut rig), (0x10, 0x04), "DPOFUA and WCE");
    for (cache, page) in [(Cache::NonVolatile, 0x04), (Cache::WriteThrough, 0)] {
        disk.set_cache(cache);
        assert_eq!(mode(&mut rig), (0, page));
        let fua = run(&mut rig, 0xa0, &[0x2a, FUA, 0, 0, 0, 0, 0, 0, 1], 512, &[1; 512]);
        assert_eq!(fua.status(), status::CHECK_CONDITION, "DPOFUA is clear");
    }
}

/// SAM-5 §5.14: each nexus receives the unit attention once; a new session of the same nexus does not receive it
/// again.
#[test]
fn each_nexus_is_told_of_a_restart_once() {
    let mut rig = Rig::login(config(), &[]);
    assert_eq!(attention(&mut rig), None);
    rig.target.restart();
    for told in [Some(Sense::RESET), None] {
        log_in_again(&mut rig);
        assert_eq!(attention(&mut rig), told);
        assert_eq!(attention(&mut rig), None);
    }
    rig.target.restart();
    log_in_again(&mut rig);
    log_in_again(&mut rig);
    assert_eq!(attention(&mut rig), Some(Sense::RESET), "the session before never heard of it");
}

/// After a disk has lost power, another target that serves this disk informs its own initiators too.
#[test]
fn a_disk_that_lost_power_says_so_through_every_target() {
    let (mut one, disk) = volatile();
    let mut other = config();
    other.units.insert(0, Unit::new(disk));
    let mut other = Rig::login(other, &[]);
    one.target.restart();
    assert_eq!(attention(&mut other), Some(Sense::RESET));
    assert_eq!(attention(&mut other), None);
}

/// A write that is in flight at a reset ends without a response: part of it may be lost.
#[test]
fn a_reset_empties_a_volatile_cache() {
    let (mut rig, disk) = volatile();
    write(&mut rig, 0, 1, 0);
    let partial = rig.write(4, 2, &[1; 512]);
    rig.put(partial);
    assert!(rig.next().is(Opcode::R2t));
    let mut reset = Pdu::new(Opcode::TaskManagementRequest);
    reset.header[0] |= 0x40;
    reset.header[1] |= 5;
    for (at, value) in [(16, 0x99), (20, u32::MAX), (24, rig.cmd_sn)] {
        reset.set_u32(at, value);
    }
    rig.put(reset);
    assert_eq!(rig.next().response(), 0);
    assert!(disk.holds(0, &[0; 4096]));
    assert_eq!(rig.target.active_tasks(), 0);
    assert_eq!(attention(&mut rig), Some(Sense::RESET));
    assert_eq!(attention(&mut rig), None);
}

/// SBC-3 §4.7: a session that knows the capacity is informed of a change, a later session is not.
#[test]
fn a_change_of_capacity_is_told() {
    let mut rig = Rig::login(config(), &[]);
    let disk = rig.target.disk(0).unwrap();
    disk.resize(512);
    disk.resize(128);
    let read = rig.read(200, 1);
    rig.put(read);
    assert_eq!(rig.next().status(), status::CHECK_CONDITION);
    assert_eq!(attention(&mut rig), None, "once, however often it changed");
    let capacity = run(&mut rig, 0xc0, &[0x25], 8, &[]).data;
    assert_eq!(capacity[..4], 127_u32.to_be_bytes());
    disk.resize(256);
    assert_eq!(attention(&mut rig), Some(Sense::CAPACITY_CHANGED));
    disk.resize(128);
    log_in_again(&mut rig);
    assert_eq!(attention(&mut rig), None);
}

/// SPC-4 §6.13: an existing session is informed that the write cache was switched.
#[test]
fn a_switched_cache_is_told() {
    let (mut rig, disk) = volatile();
    write(&mut rig, 0, 1, 0);
    disk.switch_cache(Cache::WriteThrough);
    assert_eq!(disk.unflushed_blocks(), 0, "what was in it is on the medium");
    assert_eq!(attention(&mut rig), Some(Sense::MODE_CHANGED));
    assert_eq!((attention(&mut rig), mode(&mut rig)), (None, (0, 0)));
    disk.switch_cache(Cache::Volatile);
    log_in_again(&mut rig);
    assert_eq!(attention(&mut rig), None);
}

/// SPC-4 §4.5.7: an error that belongs to no nexus is reported to each nexus once, and the command that
/// receives it is not executed.
#[test]
fn each_nexus_is_told_of_a_deferred_error_once() {
    let (mut one, disk) = volatile();
    let mut other = config();
    other.units.insert(0, Unit::new(disk.clone()));
    let mut other = Rig::login(other, &[]);
    write(&mut one, 0, 1, 0);
    write(&mut one, 1, 1, 0);
    assert_eq!(disk.fail_write_back(1..8), 1);
    assert!(disk.holds(0, &[1; 512]) && disk.holds(512, &[0; 512]));
    log_in_again(&mut one);
    for rig in [&mut one, &mut other] {
        let cdb = [0x2a, 0, 0, 0, 0, 2, 0, 0, 1];
        let answer = run(rig, 0xa0, &cdb, 512, &[7; 512]);
        assert_eq!((answer.status(), answer.data[2] & 0x7f), (status::CHECK_CONDITION, 0x71));
        assert_eq!(answer.data[2 + 2], 3, "MEDIUM ERROR");
        assert!(disk.holds(1024, &[0; 512]), "that write was not executed");
        assert_eq!(attention(rig), None);
    }
}

/// A unit need not keep data that it could not flush (SBC-3 §5.22).
#[test]
fn a_flush_that_fails_may_lose_what_is_in_the_cache() {
    for loses in [false, true] {
        let (mut rig, disk) = volatile();
        write(&mut rig, 3, 1, 0);
        rig.target.config_mut().faults.push(Fault::flush_error(.., loses).times(1));
        let flush = [0x35, 0, 0, 0, 0, 0, 0, 0, 0];
        let answer = run(&mut rig, 0x80, &flush, 0, &[]);
        assert_eq!((answer.status(), answer.data[2 + 2]), (status::CHECK_CONDITION, 3));
        assert_eq!(
            (disk.holds(3 * 512, &[1; 512]), disk.cache_losses()),
            (!loses, u64::from(loses))
        );
        synchronize(&mut rig, 0, 0, 0);
    }
}

/// SPC-4 §6.33: after the unit of a LUN was replaced, INQUIRY reports the new unit, and the next command ends
/// with a unit attention.
#[test]
fn another_unit_behind_the_same_number_is_told() {
    let mut rig = Rig::login(config(), &[]);
    let mut unit = Unit::new(RamDisk::new(4096, 8));
    unit.serial = "0002".into();
    unit.naa += 1;
    rig.target.replace_unit(0, unit);
    let page = run(&mut rig, 0xc0, &[0x12, 1, 0x80, 0, 64], 64, &[]).data;
    assert_eq!(&page[4..], b"0002", "INQUIRY leaves the attention pending");
    assert_eq!(attention(&mut rig), Some(Sense::LUNS_CHANGED));
    assert_eq!(attention(&mut rig), None);
    let capacity = run(&mut rig, 0xc0, &[0x25], 8, &[]).data;
    assert_eq!(capacity[..], [0, 0, 0, 7, 0, 0, 0x10, 0]);
}

/// SPC-4 §5.15.2.4: ports that do not serve the unit report the reason, but still identify the unit.
#[test]
fn ports_serve_what_their_access_state_allows() {
    let mut rig = Rig::login(config(), &[]);
    for (state, sense) in [
        (AccessState::ActiveNonOptimized, None),
        (AccessState::Standby, Some(Sense::new(2, 0x04, 0x0b))),
        (AccessState::Unavailable, Some(Sense::new(2, 0x04, 0x0c))),
        (AccessState::Transitioning, Some(Sense::new(2, 0x04, 0x0a))),
        (AccessState::ActiveOptimized, None),
    ] {
        rig.target.set_access(state);
        let tells = state != AccessState::Transitioning;
        assert_eq!(attention(&mut rig), tells.then_some(Sense::ACCESS_STATE_CHANGED).or(sense));
        assert_eq!(attention(&mut rig), sense, "{state:?}");
        let page = run(&mut rig, 0xc0, &[0x12, 1, 0x80, 0, 64], 64, &[]).data;
        assert_eq!(&page[4..], b"0001", "{state:?}");
        rig.target.set_access(state);
        assert_eq!(attention(&mut rig), sense, "nothing has changed");
    }
}

/// SPC-4 §6.4.2, SBC-3 §4.8: a target that starts accepts logins before its units are present or ready.
#[test]
fn units_may_come_later_than_their_target() {
    let mut rig = Rig::login(config(), &[]);
    let becoming = Some(Sense::new(2, 0x04, 0x01));
    for (presence, sense, qualifier) in [
        (Presence::Missing, Some(Sense::INVALID_LUN), 0x7f),
        (Presence::BecomingReady, becoming, 0),
        (Presence::Served, None, 0),
    ] {
        rig.target.config_mut().presence = presence;
        assert_eq!(attention(&mut rig), sense, "{presence:?}");
        let inquiry = run(&mut rig, 0xc0, &[0x12, 0, 0, 0, 36], 36, &[]).data;
        assert_eq!(inquiry[0], qualifier, "{presence:?}");
        let list = run(&mut rig, 0xc0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16], 16, &[]).data;
        let is_listed = presence != Presence::Missing;
        assert_eq!(list[3], 8 * u8::from(is_listed), "{presence:?}");
    }
}

/// With the default cache of a disk, WCE is set and nothing is lost.
#[test]
fn nothing_is_lost_by_default() {
    let mut rig = Rig::login(config(), &[]);
    write(&mut rig, 0, 1, 0);
    assert_eq!(mode(&mut rig), (0, 0x04));
    rig.target.restart();
    assert!(rig.target.disk(0).unwrap().holds(0, &[1; 512]));
}
