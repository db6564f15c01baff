//! Tests of futures that are dropped at every point: no data is lost, nothing hangs, and the sequence numbers
//! stay right.

use std::pin::pin;

use crate::support::{Rig, initiator, pattern, soon, until};
use iscsi_initiator::scsi::Cdb;
use iscsi_initiator::{Disk, ErrorKind, Options};
use iscsi_testkit::scsi::Sense;
use iscsi_testkit::target::Outcome;

/// Runs a future for `turns` turns of the runtime, then drops it. Returns whether it has completed.
async fn run_for(turns: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    for _ in 0..turns {
        tokio::select! {
            biased;
            _ = &mut future => return true,
            () = tokio::task::yield_now() => {}
        }
    }
    false
}

/// A unit reports a reset once. The report counts even if the caller of the command has stopped waiting.
#[tokio::test]
async fn what_a_dropped_command_was_told_counts() {
    let rig = Rig::start(512, 1024, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    soon(disk.write_at(0, pattern(512, 1))).await.unwrap();
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::RESET)));
    let ended = session.stats().tasks_ended;
    let mut read = Box::pin(disk.read_at(0, 512));
    assert!(is_pending_after_a_poll(&mut read).await);
    until(|| session.stats().tasks_ended > ended).await;
    drop(read);
    let error = soon(disk.flush()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
}

/// Polls a future once. Returns whether it is pending.
async fn is_pending_after_a_poll<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

async fn write_and_read_back(disk: &Disk, offset: u64, seed: u8) {
    let data = pattern(10_000, seed);
    soon(disk.write_at(offset, data.clone())).await.unwrap();
    assert_eq!(soon(disk.read_at(offset, data.len())).await.unwrap(), data);
}

#[tokio::test]
async fn dropped_at_any_turn_the_session_stays_in_step() {
    let rig = Rig::start(512, 32768, |config| {
        config.window = 4;
        config.keys.max_burst_length = 16384;
        config.keys.first_burst_length = 4096;
    })
    .await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let mut ended = [0, 0];
    for turns in 0..60 {
        let done = [
            run_for(turns, disk.write_at(1000, pattern(100_000, 1))).await,
            run_for(turns, disk.read_at(0, 300_000)).await,
            run_for(turns, disk.flush()).await,
            run_for(turns, session.ping()).await,
        ];
        done.iter().for_each(|done| ended[usize::from(*done)] += 1);
        write_and_read_back(&disk, 1 << 20, turns as u8).await;
    }
    assert!(ended[0] > 0 && ended[1] > 0, "{ended:?}: the test does not cover both ends");
    soon(session.logout()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn many_tasks_aborted_among_others_do_no_harm() {
    let rig = Rig::start(512, 32768, |config| config.window = 16).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let tasks: Vec<_> = (0..200u64)
        .map(|number| {
            let disk = disk.clone();
            tokio::spawn(async move {
                let offset = number * 40_000;
                if number % 2 == 0 {
                    return run_for(number as usize / 4, disk.write_at(offset, vec![9; 40_000]))
                        .await;
                }
                let data = pattern(40_000, number as u8);
                disk.write_at(offset, data.clone()).await.unwrap();
                disk.read_at(offset, 40_000).await.unwrap() == data
            })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let ended_well = soon(task).await.unwrap();
        assert!(number % 2 == 0 || ended_well, "request {number}");
    }
    soon(session.logout()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_dropped_command_on_the_wire_is_aborted_and_its_late_answer_ignored() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    rig.server.with(|target| target.hold());
    let before = rig.server.with(|target| target.commands().len());
    {
        let mut read = pin!(disk.read_at(0, 65536));
        tokio::select! {
            _ = &mut read => panic!("the target holds its answers back"),
            () = until(|| rig.server.with(|target| target.commands().len() > before)) => {}
        }
    }
    until(|| rig.server.with(|target| target.active_tasks() == 0)).await;
    rig.server.with(|target| target.release());
    write_and_read_back(&disk, 512, 7).await;
    rig.assert_clean();
}

#[tokio::test]
async fn a_write_waits_until_the_target_is_done_with_a_dropped_one() {
    let rig = Rig::start(512, 4096, |config| config.silent_task_management = true).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let commands = || rig.server.with(|target| target.commands().len());
    rig.server.with(|target| target.hold());
    let before = commands();
    {
        let mut first = pin!(disk.write_at(0, vec![1; 1024]));
        tokio::select! {
            _ = &mut first => panic!("the target holds its answers back"),
            () = until(|| commands() > before) => {}
        }
    }
    // The target does not respond to the abort, so the result of the first write is unknown, and a write of
    // the same block waits.
    let same_block = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(700, vec![2; 100]).await }
    });
    let elsewhere = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(4096, vec![3; 512]).await }
    });
    for _ in 0..5 {
        soon(session.ping()).await.unwrap();
    }
    assert_eq!(commands(), before + 2, "the other block alone is written");
    assert!(!same_block.is_finished());
    rig.server.with(|target| target.release());
    soon(elsewhere).await.unwrap().unwrap();
    assert!(rig.disk.holds(4096, &[3; 512]));
    same_block.abort();
    rig.assert_clean();
}

#[tokio::test]
async fn a_command_that_never_left_disappears_without_a_trace() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    rig.server.with(|target| target.set_window(0));
    // Commands up to the last MaxCmdSN are sent; later commands must wait.
    let before = rig.server.with(|target| target.commands().len());
    let unit = disk.unit();
    let blocked: Vec<_> = (0..100)
        .map(|_| {
            let unit = unit.clone();
            tokio::spawn(async move {
                unit.execute(unit.command(Cdb::test_unit_ready())).await.unwrap();
            })
        })
        .collect();
    until(|| rig.server.with(|target| target.commands().len() > before)).await;
    soon(session.ping()).await.unwrap();
    let sent = rig.server.with(|target| target.commands().len());
    assert!(sent < before + 100, "the window did not close");
    assert!(!run_for(20, disk.write_at(0, vec![1; 512])).await);
    blocked.iter().for_each(|task| task.abort());
    for task in blocked {
        drop(task.await);
    }
    rig.server.with(|target| target.set_window(64));
    soon(session.ping()).await.unwrap();
    write_and_read_back(&disk, 1024, 3).await;
    assert!(rig.disk.holds(0, &[0; 512]), "the write that was dropped never left");
    rig.assert_clean();
}

#[tokio::test]
async fn dropped_requests_give_their_share_of_the_budget_back() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let options = Options::default().with_max_requests(2).with_max_bytes_in_flight(4096);
    let session = rig.session(options).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    for turns in 0..40 {
        run_for(turns, disk.read_at(0, 100_000)).await;
        run_for(turns, disk.write_at(0, vec![0; 4096])).await;
    }
    write_and_read_back(&disk, 0, 1).await;
    rig.assert_clean();
}

#[tokio::test]
async fn a_dropped_connect_leaves_no_session_behind() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let initiator = initiator(Options::default());
    for turns in 0..30 {
        run_for(turns, initiator.connect(rig.unit_url(0, ""))).await;
    }
    until(|| rig.server.with(|target| target.sessions()) == 0).await;
    let session = soon(initiator.connect(rig.unit_url(0, ""))).await.unwrap();
    soon(session.disk_without_reconnect()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_dropped_disk_future_can_be_asked_again() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let session = rig.session(Options::default()).await;
    for turns in 0..10 {
        run_for(
            turns,
            session.logical_unit(iscsi_initiator::scsi::Lun::ZERO).disk_without_reconnect(),
        )
        .await;
    }
    assert_eq!(soon(session.disk_without_reconnect()).await.unwrap().capacity(), 64 * 512);
    rig.assert_clean();
}
