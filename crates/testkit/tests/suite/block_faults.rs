//! Tests of faults of blocks: the commands that they affect, the responses, and how often the faults occur.

use std::time::{Duration, Instant};

use crate::rig::{Rig, config, pattern};
use iscsi_testkit::fault::Fault;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::scsi::{Access, Sense, status};

fn rig(faults: Vec<Fault>) -> Rig {
    let mut config = config();
    config.faults = faults;
    Rig::login(config, &[])
}

/// Reads two blocks and returns the PDU with the status.
fn read(rig: &mut Rig, lba: u8) -> Pdu {
    let read = rig.read(lba, 2);
    rig.put(read);
    rig.next()
}

/// Writes two blocks with immediate data and returns the response.
fn write(rig: &mut Rig, lba: u8) -> Pdu {
    let write = rig.write(lba, 2, &pattern(1024));
    rig.put(write);
    rig.next()
}

/// Returns sense key, code, qualifier, and the INFORMATION field if it is valid (SPC-4 §4.5.3).
fn sense(pdu: &Pdu) -> (Sense, Option<u32>) {
    assert_eq!(pdu.status(), status::CHECK_CONDITION, "{pdu:?}");
    let fixed = &pdu.data[2..];
    let information = u32::from_be_bytes(fixed[3..7].try_into().unwrap());
    assert_eq!(fixed[0] & 0x7f, 0x70);
    (Sense::new(fixed[2], fixed[12], fixed[13]), (fixed[0] & 0x80 != 0).then_some(information))
}

#[test]
fn a_medium_error_names_the_first_bad_block_that_was_reached() {
    let mut rig = rig(vec![Fault::medium_error(10..12)]);
    assert_eq!(read(&mut rig, 8).status(), status::GOOD);
    assert_eq!(sense(&read(&mut rig, 9)), (Sense::READ_ERROR, Some(10)));
    let bad = read(&mut rig, 11);
    assert_eq!(sense(&bad), (Sense::READ_ERROR, Some(11)));
    assert_eq!((bad.residual(), bad.flag(0x02)), (1024, true), "no byte was moved");
    assert_eq!(read(&mut rig, 12).status(), status::GOOD);
    assert_eq!(write(&mut rig, 10).status(), status::GOOD);
    rig.assert_no_violations();
}

#[test]
fn a_write_that_fails_changes_nothing() {
    let mut rig = rig(vec![Fault::write_error(5..=5)]);
    let answer = write(&mut rig, 4);
    assert_eq!(sense(&answer), (Sense::WRITE_ERROR, Some(5)));
    assert!(rig.target.disk(0).unwrap().holds(4 * 512, &[0; 1024]));
    assert_eq!(read(&mut rig, 5).status(), status::GOOD);
}

#[test]
fn a_fault_ends_after_so_many_commands() {
    let mut rig = rig(vec![Fault::busy(0..4, 2), Fault::task_set_full(0..4, 1)]);
    let statuses: Vec<_> = (0..4).map(|_| read(&mut rig, 3).status()).collect();
    assert_eq!(statuses, [status::BUSY, status::BUSY, status::TASK_SET_FULL, status::GOOD]);
    assert!(rig.target.config_mut().faults.is_empty());
}

#[test]
fn a_fault_may_be_meant_for_another_unit_or_access() {
    let other_unit = Fault::sense(.., Sense::WRITE_PROTECTED).on_unit(1);
    let unmap = Fault::sense(.., Sense::WRITE_PROTECTED).on_access(Access::Unmap);
    let flush = Fault::sense(.., Sense::WRITE_ERROR).on_access(Access::SynchronizeCache);
    let mut rig = rig(vec![other_unit, unmap, flush]);
    assert_eq!(read(&mut rig, 0).status(), status::GOOD);
    assert_eq!(write(&mut rig, 0).status(), status::GOOD);
    let flush = rig.command(0x80, &[0x35], 0, &[]);
    rig.put(flush);
    assert_eq!(sense(&rig.next()), (Sense::WRITE_ERROR, Some(0)));
    assert_eq!(rig.target.disk(0).unwrap().flushes(), 0);
}

/// Sends an UNMAP of two ranges, given by first block and number of blocks.
fn unmap(rig: &mut Rig, ranges: [(u64, u32); 2]) -> Pdu {
    let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    rig.command(0xa0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 40], 40, &list)
}

/// The blocks of an UNMAP are in its parameter list. If one range has a fault, no range is deallocated.
#[test]
fn a_range_of_an_unmap_meets_its_fault() {
    let mut rig = rig(vec![Fault::sense(20..30, Sense::WRITE_ERROR)]);
    assert_eq!(write(&mut rig, 0).status(), status::GOOD);
    let unmap = unmap(&mut rig, [(0, 2), (25, 100)]);
    rig.put(unmap);
    assert_eq!(sense(&rig.next()), (Sense::WRITE_ERROR, Some(25)));
    assert!(rig.target.disk(0).unwrap().holds(0, &pattern(1024)));
}

#[test]
fn a_connection_breaks_at_a_block() {
    let mut rig = rig(vec![Fault::drop_connection(7..8)]);
    assert_eq!(read(&mut rig, 0).status(), status::GOOD);
    let read = rig.read(6, 2);
    rig.put(read);
    assert!(rig.target.is_closed(rig.id));
    assert_eq!(rig.target.active_tasks(), 0);
}

#[test]
fn one_byte_is_wrong_in_either_direction() {
    let mut rig = rig(vec![Fault::wrong_byte(9..10).times(2)]);
    assert_eq!(write(&mut rig, 8).status(), status::GOOD);
    let disk = rig.target.disk(0).unwrap();
    let mut spoiled = pattern(1024);
    spoiled[512] = !spoiled[512];
    assert!(disk.holds(8 * 512, &spoiled), "the first byte of block 9");
    assert_eq!(read(&mut rig, 8).data, pattern(1024), "and back again");
    assert_eq!(read(&mut rig, 8).data, spoiled);
}

#[expect(
    clippy::disallowed_methods,
    reason = "an Instant comes from a clock; all later ones are reckoned"
)]
fn start() -> Instant {
    Instant::now()
}

/// A delayed response is sent at a deadline of the caller's clock, and does not delay other responses.
#[test]
fn a_delayed_answer_waits_for_its_deadline() {
    let mut rig = rig(vec![Fault::delay(0..1, Duration::from_secs(30)).times(2)]);
    let now = start();
    let slow = rig.read(0, 1);
    let (slow_tag, other) = (slow.itt(), rig.write(0, 1, &pattern(512)));
    rig.put(slow);
    rig.put(other.clone());
    rig.target.advance(now);
    assert!(rig.try_next().is_none());
    let due = now + Duration::from_secs(30);
    assert_eq!(rig.target.deadline(rig.id), Some(due));
    let quick = read(&mut rig, 4);
    assert_eq!(quick.status(), status::GOOD);
    rig.target.advance(due - Duration::from_nanos(1));
    assert!(rig.try_next().is_none());
    rig.target.advance(due);
    assert_eq!(rig.target.deadline(rig.id), None);
    let answers: Vec<_> = rig.drain().iter().map(Pdu::itt).collect();
    assert_eq!(answers, [slow_tag, other.itt()]);
    assert_eq!(rig.target.active_tasks(), 0);
    rig.assert_no_violations();
}

/// A delay applies to any response, if it was added before the fault that ends the command.
#[test]
fn a_status_instead_of_an_execution_can_be_delayed() {
    let delay = Fault::delay(.., Duration::from_secs(5));
    let busy = Fault::busy(.., 1);
    for (faults, is_late) in [(vec![delay.clone(), busy.clone()], true), (vec![busy, delay], false)]
    {
        let mut rig = rig(faults);
        let now = start();
        let command = rig.read(0, 1);
        rig.put(command);
        rig.target.advance(now);
        let first = rig.try_next();
        assert_eq!(first.is_none(), is_late);
        rig.target.advance(now + Duration::from_secs(5));
        let answer = first.or_else(|| rig.try_next()).unwrap();
        assert_eq!(answer.status(), status::BUSY);
        rig.assert_no_violations();
    }
}

/// A unit executes a command that it has received completely, even if the connection is lost.
#[test]
fn a_command_that_is_put_off_is_executed_although_its_connection_is_lost() {
    for is_lost in [false, true] {
        let mut rig = rig(vec![Fault::execute_late(.., Duration::from_secs(30)).times(1)]);
        let (disk, now) = (rig.target.disk(0).unwrap(), start());
        let before = disk.read(0, 512);
        let late = rig.write(0, 1, &pattern(512));
        rig.put(late);
        rig.target.advance(now);
        if is_lost {
            rig.target.disconnected(rig.id);
        }
        let due = now + Duration::from_secs(30);
        assert_eq!((rig.target.next_execution(), rig.target.put_off_commands()), (Some(due), 1));
        rig.target.advance(due - Duration::from_nanos(1));
        assert!(disk.holds(0, &before));
        rig.target.advance(due);
        assert!(disk.holds(0, &pattern(512)));
        assert_eq!((rig.target.next_execution(), rig.target.put_off_commands()), (None, 0));
        let status = rig.try_next().map(|response| response.status());
        assert_eq!(status, (!is_lost).then_some(status::GOOD));
        rig.assert_no_violations();
    }
}

#[test]
fn only_what_writes_is_executed_late() {
    for is_unmap in [false, true] {
        let mut rig = rig(vec![Fault::execute_late(.., Duration::from_secs(30)).times(1)]);
        let (disk, now) = (rig.target.disk(0).unwrap(), start());
        disk.write(0, &[7; 512]);
        assert_eq!(read(&mut rig, 0).status(), status::GOOD);
        let flush = rig.command(0x80, &[0x35], 0, &[]);
        rig.put(flush);
        assert_eq!(rig.next().status(), status::GOOD);
        let late = if is_unmap {
            unmap(&mut rig, [(0, 1), (4, 1)])
        } else {
            // The command is WRITE SAME (10) of a block of zeros.
            rig.command(0xa0, &[0x41, 0, 0, 0, 0, 0, 0, 0, 1], 512, &[0; 512])
        };
        rig.put(late);
        rig.target.advance(now);
        assert!(rig.try_next().is_none(), "it was left for the first command that writes");
        assert!(disk.holds(0, &[7; 512]));
        rig.target.advance(now + Duration::from_secs(30));
        assert_eq!(rig.next().status(), status::GOOD);
        assert!(disk.holds(0, &[0; 512]));
        rig.assert_no_violations();
    }
}

/// An UNMAP that fails is not executed, neither immediately nor late.
#[test]
fn an_unmap_that_is_put_off_meets_the_other_faults_of_its_ranges() {
    let late = Fault::execute_late(.., Duration::from_secs(30));
    let mut rig = rig(vec![late, Fault::sense(4..5, Sense::WRITE_ERROR)]);
    let unmap = unmap(&mut rig, [(0, 1), (4, 1)]);
    rig.put(unmap);
    assert_eq!(sense(&rig.next()), (Sense::WRITE_ERROR, Some(4)));
    assert_eq!(rig.target.put_off_commands(), 0);
}

/// RFC 7143 §6.3.5, §11.5: after a session reinstatement or a LOGICAL UNIT RESET, no command waits to be
/// executed.
#[test]
fn reinstatement_and_reset_end_what_was_put_off() {
    for resets in [false, true] {
        let mut rig = rig(vec![Fault::execute_late(.., Duration::from_secs(30))]);
        let late = rig.write(0, 1, &pattern(512));
        rig.put(late);
        rig.target.advance(start());
        if resets {
            let mut reset = rig.request(Opcode::TaskManagementRequest);
            reset.header[1] |= 5;
            rig.put(reset);
            assert_eq!(rig.next().response(), 0);
        } else {
            rig.target.disconnected(rig.id);
            assert_eq!(rig.target.put_off_commands(), 1);
            rig = rig.log_in_again();
        }
        assert_eq!(rig.target.put_off_commands(), 0);
    }
}

/// The delayed response of an aborted command is not sent.
#[test]
fn an_aborted_command_loses_its_delayed_answer() {
    let mut rig = rig(vec![Fault::delay(.., Duration::from_secs(1))]);
    let slow = rig.read(0, 1);
    rig.put(slow.clone());
    rig.target.advance(start());
    let mut abort = Pdu::new(Opcode::TaskManagementRequest);
    abort.header[0] |= 0x40;
    abort.header[1] |= 1;
    abort.set_u32(16, 0x99);
    abort.set_u32(20, slow.itt());
    abort.set_u32(24, rig.cmd_sn);
    abort.set_u32(32, slow.cmd_sn());
    rig.put(abort);
    assert_eq!(rig.next().response(), 0);
    assert_eq!(rig.target.deadline(rig.id), None);
    rig.assert_no_violations();
}
