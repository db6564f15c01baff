use bytes::Bytes;

use super::*;

/// Returns the bytes that a write puts into a grain.
fn grain(write: &Write, at: usize) -> Bytes {
    let first = write.grains.start;
    write.data().slice((at - first) * GRAIN..(at + 1 - first) * GRAIN)
}

/// Checks a read that begins and ends immediately.
fn read(oracle: &mut Oracle, at: usize, data: &[u8]) -> Result<(), String> {
    let begun = oracle.now();
    oracle.check(begun, at, data)
}

/// Makes a write that succeeds. Returns the bytes of its first grain.
fn written(oracle: &mut Oracle, grains: Range<usize>) -> Bytes {
    let write = oracle.begin_write(1, grains.clone(), false);
    let data = grain(&write, grains.start);
    oracle.end_write(write, true);
    data
}

fn oracle() -> Oracle {
    Oracle::new(16 * GRAIN, true, true)
}

#[test]
fn a_read_sees_the_last_write_that_has_ended() {
    let mut oracle = oracle();
    let old = written(&mut oracle, 2..5);
    let new = written(&mut oracle, 2..3);
    assert!(read(&mut oracle, 2, &old).is_err());
    assert!(read(&mut oracle, 2, &[0; GRAIN]).is_err());
    assert!(read(&mut oracle, 2, &new).is_ok());
    assert!(read(&mut oracle, 3, &new).is_err(), "it was written to another place");
    assert!(read(&mut oracle, 2, &[new.slice(..32), old.slice(32..)].concat()).is_err());
}

#[test]
fn of_writes_at_the_same_time_any_may_be_the_last_but_only_one() {
    let mut oracle = oracle();
    let before = oracle.now();
    let writes = [(); 2].map(|()| oracle.begin_write(1, 0..1, false));
    let [first, second] = writes.each_ref().map(|write| grain(write, 0));
    assert!(read(&mut oracle, 0, &[0; GRAIN]).is_ok(), "neither may have been carried out");
    writes.into_iter().for_each(|write| oracle.end_write(write, true));
    assert!(read(&mut oracle, 0, &first).is_ok());
    assert!(read(&mut oracle, 0, &second).is_err(), "the first one was the last");
    assert!(oracle.check(before, 0, &second).is_ok(), "that read had begun before");
}

#[test]
fn a_write_that_failed_may_come_until_a_later_one_has_ended() {
    let mut oracle = oracle();
    let old = written(&mut oracle, 0..1);
    let failed = oracle.begin_write(1, 0..1, false);
    let data = grain(&failed, 0);
    oracle.end_write(failed, false);
    for data in [&old, &data, &data] {
        assert!(read(&mut oracle, 0, data).is_ok());
    }
    let new = written(&mut oracle, 0..1);
    assert!(read(&mut oracle, 0, &data).is_err());
    assert!(read(&mut oracle, 0, &new).is_ok());
}

#[test]
fn what_a_dead_process_was_writing_may_come_until_nothing_is_on_its_way() {
    let mut oracle = oracle();
    let old = written(&mut oracle, 0..2);
    let orphan = oracle.begin_write(1, 0..1, false);
    let data = grain(&orphan, 0);
    oracle.orphaned(&[(1, true)], 2);
    let new = oracle.begin_write(2, 0..2, false);
    let news = [0, 1].map(|at| grain(&new, at));
    oracle.end_write(new, true);
    for data in [&data, &news[0], &old, &news[0]] {
        assert!(read(&mut oracle, 0, data).is_ok(), "the orphan or what it has written back");
    }
    assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err(), "that was overwritten before");
    oracle.no_orphans();
    assert!(read(&mut oracle, 0, &data).is_ok(), "it may have come before");
    let last = written(&mut oracle, 0..1);
    assert!(read(&mut oracle, 0, &data).is_err());
    assert!(read(&mut oracle, 0, &last).is_ok());
    assert!(read(&mut oracle, 1, &news[1]).is_ok());
}

#[test]
fn what_the_target_had_finished_with_is_no_orphan() {
    let after_a_death = |is_settled: bool| {
        let mut oracle = oracle();
        let old = written(&mut oracle, 0..1);
        oracle.orphaned(&[(1, is_settled)], 1);
        let new = oracle.begin_write(2, 0..1, false);
        oracle.end_write(new, true);
        read(&mut oracle, 0, &old)
    };
    assert!(after_a_death(true).is_err());
    assert!(after_a_death(false).is_ok(), "a copy of it may come");
}

#[test]
fn a_crash_undoes_nothing_that_a_flush_has_vouched_for() {
    let after_a_crash = |which: usize| {
        let mut oracle = oracle();
        let flushed = written(&mut oracle, 0..1);
        let begun = oracle.now();
        oracle.flushed(1, 0, begun);
        let lost = written(&mut oracle, 0..1);
        oracle.crashed();
        let data = [lost, flushed, Bytes::from_static(&[0; GRAIN])];
        read(&mut oracle, 0, &data[which])
    };
    assert!(after_a_crash(0).is_ok(), "it may have reached the medium");
    assert!(after_a_crash(1).is_ok());
    assert!(after_a_crash(2).is_err());
}

/// A server that acknowledges early returns data that the unit does not have, and a crash undoes it. So a
/// read of zeros from the server does not show that zeros written long before are still on the unit.
#[test]
fn zeros_that_a_server_has_not_handed_on_replace_nothing() {
    let mut oracle = oracle();
    oracle.answer_early();
    let flushed = written(&mut oracle, 0..1);
    let begun = oracle.now();
    oracle.flushed(1, 0, begun);
    let zeros = oracle.begin_write(1, 0..1, true);
    oracle.end_write(zeros, true);
    oracle.crashed();
    assert!(read(&mut oracle, 0, &[0; GRAIN]).is_ok());
    assert!(read(&mut oracle, 0, &flushed).is_ok());
}

#[test]
fn a_lost_write_back_undoes_its_own_grains_and_no_others() {
    let mut oracle = oracle();
    let kept = written(&mut oracle, 0..2);
    oracle.lost(1..2);
    assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err());
    assert!(read(&mut oracle, 0, &kept).is_ok());
    assert!(read(&mut oracle, 1, &[0; GRAIN]).is_ok());
}

#[test]
fn what_lay_behind_a_new_end_is_gone_whatever_a_flush_has_said() {
    let mut oracle = oracle();
    written(&mut oracle, 8..9);
    let begun = oracle.now();
    oracle.flushed(1, 0, begun);
    oracle.resized(8);
    assert!(read(&mut oracle, 8, &[0; GRAIN]).is_ok());
    let new = written(&mut oracle, 8..9);
    assert!(read(&mut oracle, 8, &[0; GRAIN]).is_err());
    assert!(read(&mut oracle, 8, &new).is_ok());
}

#[test]
fn a_flush_of_a_stream_vouches_for_what_it_wrote_unless_nobody_was_told_of_the_loss() {
    let after_a_loss = |is_told: bool| {
        let mut oracle = oracle();
        let write = oracle.begin_write(1, 0..1, false);
        oracle.mark_unreported(|disk| !is_told && disk == 1);
        oracle.crashed();
        oracle.end_flushed_write(write, 0);
        read(&mut oracle, 0, &[0; GRAIN])
    };
    assert!(after_a_loss(true).is_err());
    assert!(after_a_loss(false).is_ok());
}

#[test]
fn who_is_not_told_of_a_loss_is_told_of_those_before_and_so_are_all_others() {
    for (disk, is_earlier) in [(1, true), (2, false)] {
        let mut oracle = oracle();
        let write = oracle.begin_write(disk, 0..1, false);
        oracle.end_write(write, true);
        if is_earlier {
            oracle.crashed();
        }
        oracle.mark_unreported(|disk| disk == 1);
        oracle.crashed();
        let begun = oracle.now();
        oracle.flushed(disk, 0, begun);
        assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err(), "a flush has vouched for it");
    }
}

#[test]
fn a_write_that_was_under_way_at_a_loss_may_be_undone_by_one_that_nobody_is_told_of() {
    let is_right = |ends_before: bool| {
        let mut oracle = oracle();
        let write = oracle.begin_write(1, 0..1, false);
        if ends_before {
            oracle.end_write(write, true);
            oracle.crashed();
        } else {
            oracle.crashed();
            oracle.end_write(write, true);
        }
        // A change of size concerns only the data beyond the new end.
        oracle.resized(8);
        oracle.resized(16);
        oracle.mark_unreported(|disk| disk == 1);
        oracle.crashed();
        let begun = oracle.now();
        oracle.flushed(1, 0, begun);
        read(&mut oracle, 0, &[0; GRAIN]).is_ok()
    };
    assert!(is_right(false));
    assert!(!is_right(true));
}

#[test]
fn a_flush_vouches_for_what_was_lost_unless_the_handle_was_told() {
    let mut oracle = oracle();
    written(&mut oracle, 0..1);
    oracle.crashed();
    oracle.on_reported_loss(1, 0);
    let begun = oracle.now();
    oracle.flushed(1, 0, begun);
    assert!(read(&mut oracle, 0, &[0; GRAIN]).is_ok());
    let begun = oracle.now();
    oracle.flushed(1, 1, begun);
    assert!(read(&mut oracle, 0, &[0; GRAIN]).is_err(), "the other handle was not told");
}
