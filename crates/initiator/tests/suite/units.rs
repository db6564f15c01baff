//! Tests of units with defects or quirks of real ones: properties that they omit or report in another way,
//! and what still works.

use crate::support::{Rig, TARGET, initiator, notes_of, pattern, soon, until};
use iscsi_initiator::{Advice, Disk, Options, Sessions};
use iscsi_pdu::scsi::ProvisioningStatus;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::{ConnId, Outcome};

const BLOCKS: u64 = 4096;
const SERIAL_NUMBER: u8 = 0x80;
const IDENTIFICATION: u8 = 0x83;

fn fixed(count: u32) -> Options {
    Options::default().with_sessions(Sessions::Fixed(count))
}

async fn start(change: impl FnMut(&mut Unit)) -> Rig {
    Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config.units.values_mut().for_each(change);
    })
    .await
}

async fn open(rig: &Rig, sessions: u32) -> Disk {
    soon(initiator(fixed(sessions)).disk(rig.unit_url(0, ""))).await.unwrap()
}

fn change_unit(rig: &Rig, change: impl FnMut(&mut Unit)) {
    rig.server.with(|target| target.config_mut().units.values_mut().for_each(change));
}

/// Closes all connections of the target.
fn cut(rig: &Rig) {
    rig.server.with(|target| {
        for id in 0..target.accepted() {
            target.drop_connection(ConnId(id));
        }
    });
}

/// Returns how many commands with one of these operation codes have arrived.
fn count(rig: &Rig, codes: &[u8]) -> usize {
    rig.server.with(|target| {
        target.commands().iter().filter(|command| codes.contains(&command.cdb[0])).count()
    })
}

fn notes(disk: &Disk) -> String {
    notes_of(disk).join("\n")
}

/// Asserts that a lost session does not reconnect, for this reason, and that writes fail with this reason.
async fn assert_given_up(disk: &Disk, reason: &str) {
    assert!(soon(disk.write_at(0, pattern(512, 0))).await.is_err());
    until(|| notes(disk).contains("did not come back")).await;
    assert!(notes(disk).contains(reason), "{}", disk.status());
    let error = soon(disk.write_at(0, pattern(512, 0))).await.unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
}

/// Writes and reads a pattern.
async fn assert_works(rig: &Rig, disk: &Disk, seed: u8) {
    let data = pattern(8192, seed);
    soon(disk.write_at(4096, data.clone())).await.unwrap();
    assert!(rig.disk.holds(4096, &data));
    assert_eq!(soon(disk.read_at(4096, 8192)).await.unwrap(), data);
    soon(disk.flush()).await.unwrap();
}

/// SPC-4 §4.2.5.6: parameter data may be shorter than the allocation length although the target reports no
/// residual count. The disk opens.
#[tokio::test]
async fn parameter_data_without_a_residual_open_a_disk() {
    for separate_status in [false, true] {
        let rig = Rig::start(512, BLOCKS, |config| {
            config.data_in.no_residual = true;
            config.data_in.separate_status = separate_status;
        })
        .await;
        let disk = open(&rig, 2).await;
        assert_eq!(disk.capacity(), BLOCKS * 512);
        assert_eq!(disk.profile().serial_number.as_deref(), Some("0001"));
        assert!(disk.profile().designator.is_some() && disk.profile().provisioning.is_some());
        assert_eq!(disk.profile().write_cache, Some(true));
        assert_works(&rig, &disk, 1).await;
        rig.assert_clean();
    }
}

/// SPC-2: the allocation length of INQUIRY was one byte. A unit that only reads this byte still works.
#[tokio::test]
async fn units_that_look_at_one_byte_of_the_allocation_length() {
    let rig = start(|unit| unit.behavior.one_byte_allocation = true).await;
    let disk = open(&rig, 2).await;
    assert_eq!(disk.profile().serial_number.as_deref(), Some("0001"));
    assert!(disk.profile().designator.is_some() && disk.profile().provisioning.is_some());
    assert_eq!(disk.sessions().len(), 2);
    assert_eq!(disk.unit().vital_product_data(SERIAL_NUMBER).await.unwrap()[4..], *b"0001");
}

/// A VPD page whose length does not fit in one byte is requested again, with the length that it reports.
#[tokio::test]
async fn long_pages_come_whole() {
    let port = [&[0x53, 0x98, 0, 252][..], &[b'p'; 252]].concat();
    let naa = [&[0x01, 0x03, 0, 8][..], &[0x50, 0, 0xc5, 0, 1, 2, 3, 4]].concat();
    for one_byte_allocation in [false, true] {
        let names = [port.clone(), naa.clone()].concat();
        let rig = start(|unit| {
            unit.behavior.designators = Some(names.clone());
            unit.behavior.one_byte_allocation = one_byte_allocation;
        })
        .await;
        let disk = open(&rig, 2).await;
        let page = disk.unit().vital_product_data(IDENTIFICATION).await.unwrap();
        // A unit that reads one byte of the allocation length returns at most 251 bytes of the page's data.
        assert_eq!(page[4..], names[..if one_byte_allocation { 251 } else { names.len() }]);
        let name = disk.profile().designator.as_ref().map(ToString::to_string);
        assert_eq!(name, (!one_byte_allocation).then(|| "naa.5000c50001020304".to_owned()));
        assert_eq!(disk.sessions().len(), 2);
    }
}

/// A long VPD page is queried again in full only if its beginning does not identify the unit.
#[tokio::test]
async fn a_long_page_that_begins_with_the_name_is_asked_for_once() {
    let naa = [&[0x01, 0x03, 0, 8][..], &[0x50, 0, 0xc5, 0, 1, 2, 3, 4]].concat();
    let port = [&[0x53, 0x98, 0, 252][..], &[b'p'; 252]].concat();
    let names = [naa, port].concat();
    let rig = start(|unit| unit.behavior.designators = Some(names.clone())).await;
    let disk = soon(rig.session(Options::default())).await.disk_without_reconnect().await.unwrap();
    assert_eq!(disk.profile().designator.as_ref().unwrap().to_string(), "naa.5000c50001020304");
    let asked = rig.server.with(|target| {
        let commands = target.commands().iter();
        commands.filter(|command| command.cdb[..3] == [0x12, 1, IDENTIFICATION]).count()
    });
    assert_eq!(asked, 1);
}

/// If the unit refuses to report its identifier at a reconnect, it is not another unit: the serial number
/// identifies it.
#[tokio::test]
async fn a_page_that_is_refused_at_the_reopening_is_no_other_unit() {
    let rig = start(|_| {}).await;
    let disk = open(&rig, 2).await;
    change_unit(&rig, |unit| unit.behavior.refused_pages = vec![IDENTIFICATION]);
    cut(&rig);
    until(|| disk.status().reconnects == 2).await;
    assert_works(&rig, &disk, 2).await;
    // A disk with one session reconnects as well, because also its first session has queried both identifiers.
    drop(disk);
    change_unit(&rig, |unit| unit.behavior.refused_pages.clear());
    let disk = open(&rig, 1).await;
    change_unit(&rig, |unit| unit.behavior.refused_pages = vec![IDENTIFICATION]);
    cut(&rig);
    until(|| disk.status().reconnects == 1).await;
    assert_works(&rig, &disk, 3).await;
}

/// Another serial number at a reconnect means another unit, so the disk does not reconnect.
#[tokio::test]
async fn another_serial_number_at_the_reopening_is_another_unit() {
    let rig = start(|_| {}).await;
    let disk = open(&rig, 1).await;
    change_unit(&rig, |unit| {
        unit.behavior.refused_pages = vec![IDENTIFICATION];
        unit.serial = "0002".to_owned();
    });
    cut(&rig);
    assert_given_up(&disk, "leads to another unit (serial number 0002)").await;
    assert!(rig.disk.holds(0, &[0; 512]));
}

/// While the unit reports no identifier at all, its identity is not confirmed. So nothing is written, and the
/// unit is queried again.
#[tokio::test]
async fn nothing_is_written_to_a_unit_that_does_not_say_its_name() {
    let rig = start(|_| {}).await;
    let disk = open(&rig, 1).await;
    change_unit(&rig, |unit| unit.behavior.refused_pages = vec![IDENTIFICATION, SERIAL_NUMBER]);
    cut(&rig);
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, pattern(512, 5)).await }
    });
    // The unit is queried over one session after another.
    until(|| rig.server.with(|target| target.accepted()) >= 3).await;
    assert!(rig.disk.holds(0, &[0; 512]) && count(&rig, &[0x8a, 0x2a]) == 0);
    change_unit(&rig, |unit| unit.behavior.refused_pages.clear());
    soon(write).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &pattern(512, 5)));
}

/// A unit with the same number of bytes in blocks of another size has other addresses, so nothing is written.
#[tokio::test]
async fn blocks_of_another_size_are_not_written() {
    let rig = start(|_| {}).await;
    let disk = open(&rig, 1).await;
    let other = iscsi_testkit::disk::RamDisk::new(4096, BLOCKS / 8);
    change_unit(&rig, |unit| unit.disk = other.clone());
    cut(&rig);
    assert_given_up(&disk, "blocks of 4096 bytes now, and had 512").await;
    assert!(other.holds(0, &[0; 4096]));
}

/// Makes a unit report no unique identifier, as LIO does if it was configured by hand: its T10 designator
/// only names the vendor.
fn nameless(unit: &mut Unit) {
    unit.serial = String::new();
    unit.behavior.designators = Some([&[0x02, 0x01, 0, 9][..], b"LIO-ORG \0"].concat());
}

/// SAM-5 §4.6.2: for one initiator, a LUN at a target port is one unit. So a unit without an identifier is
/// identified by its LUN and port.
#[tokio::test]
async fn a_unit_without_a_name_is_known_by_its_place() {
    let rig = start(nameless).await;
    let disk = open(&rig, 3).await;
    assert_eq!(disk.status().sessions, 3, "{}", disk.status());
    let note = "the unit has no name of its own; its target, portal group and LUN stand for it";
    assert_eq!(notes_of(&disk), [note]);
    assert_works(&rig, &disk, 7).await;
    cut(&rig);
    until(|| disk.status().reconnects == 3).await;
    assert_works(&rig, &disk, 8).await;
    rig.assert_clean();
}

/// A unit without an identifier must at least be of the same model at a reconnect.
#[tokio::test]
async fn another_model_at_the_same_place_is_another_unit() {
    let rig = start(nameless).await;
    let disk = open(&rig, 1).await;
    change_unit(&rig, |unit| unit.product = "another".to_owned());
    cut(&rig);
    let place = format!("the first session (logical unit 0 of {TARGET}, portal group 1");
    assert_given_up(&disk, &place).await;
    assert!(notes(&disk).contains("another unit (TESTKIT another 1.0)"), "{}", disk.status());
    assert!(rig.disk.holds(0, &[0; 512]));
}

/// Without an identifier, the same LUN behind another portal group may be another unit, so no session of the disk
/// uses it.
#[tokio::test]
async fn a_unit_without_a_name_stays_within_its_portal_group() {
    let rig = start(nameless).await;
    let other = Rig::start(512, BLOCKS, |config: &mut TargetConfig| {
        config.portal_group = Some(2);
        config.units.values_mut().for_each(nameless);
    })
    .await;
    let url = rig.unit_url(0, &format!("?portal={}", other.server.address()));
    let disk = soon(initiator(fixed(3)).disk(url)).await.unwrap();
    assert_eq!(rig.server.with(|target| target.sessions()), 3, "{}", disk.status());
    assert!(notes(&disk).contains("the portal is of group 2"), "{}", disk.status());
    assert_works(&rig, &disk, 10).await;
    assert!(other.disk.holds(4096, &[0; 8192]) && count(&other, &[0x8a, 0x2a]) == 0);
}

#[tokio::test]
async fn a_unit_without_a_name_or_portal_group_has_one_session() {
    let rig = start(nameless).await;
    rig.server.with(|target| target.config_mut().portal_group = None);
    let disk = open(&rig, 3).await;
    assert_eq!(disk.status().sessions, 1);
    assert!(disk.status().explain().contains("does not say its portal group"), "{}", disk.status());
    assert_works(&rig, &disk, 11).await;
}

const SHORT: [u8; 4] = [0x28, 0x2a, 0x35, 0x41];
const LONG: [u8; 4] = [0x88, 0x8a, 0x91, 0x93];

/// SBC-3: a unit that supports READ CAPACITY (16) may not support the other commands of 16 bytes. A command of 16
/// bytes that the unit has refused over one session is not sent over a later one.
#[tokio::test]
async fn commands_of_10_bytes_where_those_of_16_are_refused() {
    let rig = start(|unit| unit.behavior.refused = LONG.to_vec()).await;
    let disk = open(&rig, 1).await;
    assert!(disk.profile().capacity.long_commands);
    rig.disk.fill(1);
    soon(disk.write_zeroes(4096, 8192)).await.unwrap();
    assert!(rig.disk.holds(4096, &[0; 8192]));
    assert_works(&rig, &disk, 12).await;
    assert_eq!(LONG.map(|code| count(&rig, &[code])), [1; 4]);
    assert_eq!(SHORT.map(|code| count(&rig, &[code])), [1; 4]);
    cut(&rig);
    until(|| disk.status().reconnects == 1).await;
    assert_works(&rig, &disk, 13).await;
    soon(disk.write_zeroes(4096, 8192)).await.unwrap();
    assert_eq!(count(&rig, &LONG), 4, "no further one");
    rig.assert_clean();
}

/// Each command is handled separately: a unit that does not support one form may support the other commands,
/// also beyond 2 TiB.
#[tokio::test]
async fn one_unknown_form_is_no_word_on_the_others() {
    let rig = start(|unit| unit.behavior.refused = vec![0x91]).await;
    let disk = open(&rig, 2).await;
    assert_works(&rig, &disk, 14).await;
    assert_works(&rig, &disk, 15).await;
    assert_eq!(LONG.map(|code| count(&rig, &[code])), [2, 2, 1, 0]);
    assert_eq!(SHORT.map(|code| count(&rig, &[code])), [0, 0, 2, 0]);
}

/// SBC-3 §5.26: a unit without a cache need not support SYNCHRONIZE CACHE. Any other refusal does not mean
/// that there is no cache: data written to a unit that is gone is not on a medium.
#[tokio::test]
async fn only_who_does_not_know_a_flush_has_no_cache() {
    const MODE_SENSE_6: u8 = 0x1a;
    let rig = start(|unit| unit.behavior.refused = vec![MODE_SENSE_6]).await;
    let disk = open(&rig, 1).await;
    assert_eq!(disk.profile().write_cache, None);
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::INVALID_LUN)));
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::RestoreUnit), "{error}");
    rig.server.with(|target| {
        let unit = target.config_mut().units.get_mut(&0).unwrap();
        unit.behavior.refused.extend([0x35, 0x91]);
    });
    soon(disk.flush()).await.unwrap();
}

/// A transfer that only 16 bytes can express is split if the unit requires commands of 10 bytes.
#[tokio::test]
async fn long_transfers_fit_both_forms() {
    const LEN: usize = (1 << 16) * 512;
    let options = Options::default().with_max_transfer(2 * LEN);
    let rig = Rig::start(512, 1 << 17, |config| {
        config.units.values_mut().for_each(|unit| unit.behavior.refused = LONG.to_vec());
    })
    .await;
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    let data = pattern(LEN, 16);
    soon(disk.write_at(0, data.clone())).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    assert_eq!(soon(disk.read_at(0, LEN)).await.unwrap(), data);
    soon(disk.write_zeroes(0, disk.capacity())).await.unwrap();
    assert!(rig.disk.holds(0, &vec![0; LEN]));
    assert!(count(&rig, &[0x2a]) < 8, "zeros are not sent");
}

/// Returns whether the block at an offset is mapped, and how many blocks from there on have the same state.
async fn allocation(disk: &Disk, offset: u64) -> (bool, u64) {
    let status = soon(disk.unit().get_lba_status(offset / 512)).await.unwrap();
    let first = status.extents[0];
    (first.status == ProvisioningStatus::Mapped, first.blocks.into())
}

/// A residual count of a parameter list says nothing about the blocks: tgt reports the list of UNMAP as not
/// transferred.
#[tokio::test]
async fn a_residual_of_unmap_is_no_error() {
    for unmap_residual in [false, true] {
        let rig = start(|unit| unit.behavior.unmap_residual = unmap_residual).await;
        rig.disk.fill(2);
        let disk = open(&rig, 1).await;
        soon(disk.discard(4096, 8192)).await.unwrap();
        assert_eq!(allocation(&disk, 0).await, (true, 8));
        assert_eq!(allocation(&disk, 4096).await, (false, 16));
        rig.assert_clean();
    }
}

/// One case of a test that writes zeros. First what the unit reports of provisioning: LBPU, LBPWS, LBPWS10 and
/// LBPRZ of VPD page B2; LBPME and LBPRZ of READ CAPACITY (16); commands that the unit does not support. Then the
/// operation codes of WRITE SAME that the unit receives, and whether blocks are deallocated.
type Zeroing = ((u8, u8, &'static [u8]), &'static [u8], bool);

/// SBC-3 §4.7: writing zeros deallocates blocks only if deallocated blocks read as zeros.
#[tokio::test]
async fn zeros_are_given_back_where_unmapped_blocks_read_as_zeros() {
    let cases: [Zeroing; 9] = [
        ((0xe4, 0xc0, &[]), &[0x93], true),
        ((0x64, 0xc0, &[0x93]), &[0x93, 0x41], true),
        ((0x44, 0xc0, &[0x93]), &[0x93, 0x41, 0x41], false),
        ((0x24, 0xc0, &[]), &[0x41], true),
        ((0x84, 0xc0, &[]), &[], true),
        ((0xe0, 0xc0, &[]), &[0x93], false),
        ((0xe4, 0x80, &[]), &[0x93], false),
        ((0xe4, 0xc0, &[0x93, 0x41]), &[0x93, 0x41], true),
        ((0x64, 0xc0, &[0x93, 0x41]), &[0x93, 0x41, 0x41], false),
    ];
    for (unit, expected, is_given_back) in cases {
        let (provisioning, capacity, refused) = unit;
        let rig = start(|unit| {
            unit.behavior.provisioning = Some(provisioning);
            unit.behavior.capacity_provisioning = Some(capacity);
            unit.behavior.refused = refused.to_vec();
        })
        .await;
        rig.disk.fill(3);
        let disk = open(&rig, 1).await;
        let content = rig.disk.read(0, BLOCKS as usize * 512);
        soon(disk.write_zeroes(1000, 8192)).await.unwrap();
        assert!(rig.disk.holds(1000, &[0; 8192]), "{unit:x?}");
        assert!(rig.disk.holds(0, &content[..1000]) && rig.disk.holds(9192, &content[9192..]));
        let run = if is_given_back { (false, 15) } else { (true, BLOCKS - 2) };
        assert_eq!(allocation(&disk, 1024).await, run, "{unit:x?}");
        let sent = rig.server.with(|target| {
            let codes = target.commands().iter().map(|command| command.cdb[0]);
            codes.filter(|code| [0x41, 0x93].contains(code)).collect::<Vec<_>>()
        });
        assert_eq!(sent, expected, "{unit:x?}");
        rig.assert_clean();
    }
}

/// If a unit reports GOOD for WRITE SAME but did not transfer the block of zeros, it is not trusted: the
/// zeros are sent by WRITE.
#[tokio::test]
async fn zeros_are_sent_where_write_same_leaves_its_block_over() {
    let rig = start(|unit| unit.behavior.provisioning = Some(0x64)).await;
    rig.disk.fill(4);
    let disk = open(&rig, 1).await;
    rig.server.with(|target| {
        target.end_next_with(Outcome::GOOD);
        target.end_next_with(Outcome::GOOD);
    });
    soon(disk.write_zeroes(0, 8192)).await.unwrap();
    assert!(rig.disk.holds(0, &[0; 8192]));
    assert_eq!(count(&rig, &[0x8a]), 1);
}
