//! Tests of commands that fail or do not end soon: what is retried, and what a lost session leaves at the
//! target.

use std::time::Duration;

use crate::support::{Rig, initiator, notes_of, pattern, soon, until, without_wait};
use bytes::Bytes;
use iscsi_initiator::scsi::{Cdb, Lun, SenseKey, Status};
use iscsi_initiator::{Advice, Disk, Error, ErrorKind, Fault, Notice, Options, Session, Sessions};
use iscsi_testkit::config::{DigestPolicy, TargetConfig};
use iscsi_testkit::fault::{Effect, Fault as Break};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::{Sense, status};
use iscsi_testkit::target::{Outcome, Target};
use tokio::task::JoinSet;

async fn rig_with_disk() -> (Rig, Session, Disk) {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    (rig, session, disk)
}

#[tokio::test]
async fn what_passes_by_itself_is_tried_again() {
    let (rig, session, disk) = rig_with_disk().await;
    let data = pattern(4096, 1);
    for outcome in [
        Outcome::status(status::BUSY),
        Outcome::status(status::TASK_SET_FULL),
        Outcome::check(Sense::RESET),
        Outcome::check(Sense::new(2, 4, 1)),
        Outcome::check(Sense::CRC_ERROR),
    ] {
        for _ in 0..3 {
            rig.server.with(|target| target.end_next_with(outcome));
        }
        let before = session.retries();
        soon(disk.write_at(512, data.clone())).await.unwrap();
        assert_eq!(session.retries(), before + 3, "{outcome:?}");
        rig.server.with(|target| target.end_next_with(outcome));
        assert_eq!(soon(disk.read_at(512, 4096)).await.unwrap(), data, "{outcome:?}");
    }
    rig.assert_clean();
}

#[tokio::test]
async fn what_does_not_pass_is_not() {
    let (rig, session, disk) = rig_with_disk().await;
    rig.server.with(|target| {
        target.end_next_with(Outcome::status(status::RESERVATION_CONFLICT));
        target.end_next_with(Outcome::check(Sense::new(3, 0x11, 0)));
    });
    let error = disk.write_at(0, vec![0; 512]).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::RESERVATION_CONFLICT));
    assert!(error.to_string().contains("another initiator"), "{error}");
    let error = disk.read_at(0, 512).await.unwrap_err();
    assert_eq!(error.sense().unwrap().key, SenseKey::MediumError);
    assert_eq!((session.retries(), error.fault()), (0, Fault::Target));
    rig.assert_clean();
}

#[tokio::test]
async fn raw_commands_are_sent_once() {
    let (rig, session, disk) = rig_with_disk().await;
    rig.server.with(|target| target.end_next_with(Outcome::status(status::BUSY)));
    let unit = disk.unit();
    let error = unit.execute(unit.command(Cdb::test_unit_ready())).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::BUSY), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
    assert_eq!(session.retries(), 0);
}

#[tokio::test]
async fn a_reset_between_write_and_flush_is_told() {
    let (rig, _session, disk) = rig_with_disk().await;
    let reset = || rig.server.with(|target| target.end_next_with(Outcome::check(Sense::RESET)));
    reset();
    disk.write_at(0, vec![1; 512]).await.unwrap();
    disk.flush().await.unwrap();
    disk.write_at(0, vec![1; 512]).await.unwrap();
    reset();
    disk.read_at(0, 512).await.unwrap();
    assert_eq!(
        disk.flush().await.as_ref().err().map(Error::kind),
        Some(ErrorKind::UnflushedWritesLost)
    );
    disk.write_at(0, vec![1; 512]).await.unwrap();
    disk.flush().await.unwrap();
}

#[tokio::test]
async fn a_lost_connection_ends_every_request_once_and_says_so() {
    let (rig, session, disk) = rig_with_disk().await;
    rig.server.with(|target| target.hold());
    let before = rig.server.with(|target| target.commands().len());
    let writes: Vec<_> = (0..20u64)
        .map(|number| {
            let disk = disk.clone();
            tokio::spawn(async move { disk.write_at(number * 512, vec![7; 512]).await })
        })
        .collect();
    until(|| rig.server.with(|target| target.commands().len() == before + 20)).await;
    rig.server.stop().await;
    for write in writes {
        let error = soon(write).await.unwrap().unwrap_err();
        assert!(error.is_of_session(), "{error:?}");
        assert!(error.may_have_executed() && error.fault() == Fault::Network, "{error}");
    }
    assert!(soon(session.closed()).await.as_ref().is_err_and(Error::is_of_session));
    assert!(soon(disk.read_at(0, 1)).await.as_ref().is_err_and(Error::is_of_session));
    assert!(soon(session.logout()).await.is_err());
}

#[tokio::test]
async fn a_command_times_out_and_is_aborted() {
    let (rig, session, disk) = rig_with_disk().await;
    rig.server.with(|target| target.hold());
    let unit = disk.unit();
    let ready = unit.command(Cdb::test_unit_ready()).with_timeout(Duration::from_millis(50));
    let error = soon(unit.execute(ready)).await.unwrap_err();
    assert!(error.to_string().contains("TEST UNIT READY failed"), "{error}");
    assert!(error.may_have_executed());
    rig.server.with(|target| target.release());
    soon(session.ping()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_target_that_breaks_the_protocol_ends_the_session() {
    let rig = Rig::start(512, 4096, |config| {
        config.faults = vec![Break::sending(Opcode::NopIn, 0, Effect::SkipStatSn(5))];
    })
    .await;
    let session = rig.session(Options::default()).await;
    session.disk_without_reconnect().await.unwrap();
    drop(soon(session.ping()).await);
    let error = soon(session.closed()).await.unwrap_err();
    assert!(error.to_string().contains("does not speak iSCSI as it should"), "{error}");
}

#[tokio::test]
async fn a_unit_is_reset_and_notices_are_passed_on() {
    let (rig, session, disk) = rig_with_disk().await;
    let mut notices = session.notices();
    let response = soon(disk.unit().reset()).await.unwrap();
    assert_eq!(response, iscsi_pdu::FunctionResponse::COMPLETE);
    rig.server.with(|target| {
        let mut message = iscsi_testkit::pdu::Pdu::new(Opcode::AsyncMessage);
        message.set_u32(16, u32::MAX);
        message.set(36, &[5]);
        target.inject(iscsi_testkit::target::ConnId(0), message);
    });
    let notice = soon(notices.recv()).await.unwrap();
    assert!(matches!(notice, Notice::AsyncMessage { lun: Lun::ZERO, .. }), "{notice:?}");
}

/// A reset must not wait for requests that are stuck, because the reset frees them.
#[tokio::test]
async fn a_reset_does_not_wait_for_the_requests_that_are_stuck() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let options = Options::default().with_max_requests(2);
    let session = rig.session(options).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    rig.server.with(|target| target.hold());
    let mut reads = JoinSet::new();
    for _ in 0..3 {
        let disk = disk.clone();
        reads.spawn(async move { disk.read_at(0, 512).await });
    }
    until(|| rig.server.with(|target| target.active_tasks()) == 2).await;
    let unit = disk.unit();
    let response = tokio::select! {
        biased;
        response = soon(unit.reset()) => response.unwrap(),
        _ = reads.join_next() => panic!("the reset waits for them"),
    };
    assert_eq!(response, iscsi_pdu::FunctionResponse::COMPLETE);
    rig.server.with(|target| target.release());
    soon(session.ping()).await.unwrap();
}

#[tokio::test]
async fn notices_end_with_the_session() {
    let (_rig, session, _disk) = rig_with_disk().await;
    let mut notices = session.notices();
    soon(session.logout()).await.unwrap();
    assert!(soon(notices.recv()).await.is_none());
    assert!(soon(session.notices().recv()).await.is_none());
}

async fn disk_with_keeper(change: impl FnOnce(&mut TargetConfig), query: &str) -> (Rig, Disk) {
    let rig = Rig::start(512, 4096, change).await;
    let options =
        Options::default().with_sessions(Sessions::Fixed(1)).with_advanced(without_wait());
    let disk = soon(initiator(options).disk(rig.unit_url(0, query))).await.unwrap();
    (rig, disk)
}

/// If another initiator has reset the unit, a disk sends its aborted commands again, and unflushed writes
/// count as lost.
#[tokio::test]
async fn what_another_initiator_has_aborted_is_sent_again() {
    let (rig, disk) = disk_with_keeper(|_| {}, "").await;
    let data = pattern(4096, 2);
    soon(disk.write_at(0, data.clone())).await.unwrap();
    rig.server.with(|target| {
        target.end_next_with(Outcome::status(status::TASK_ABORTED));
        target.end_next_with(Outcome::check(Sense::RESET));
    });
    soon(disk.write_at(8192, data.clone())).await.unwrap();
    assert!(rig.disk.holds(8192, &data));
    assert_eq!(
        soon(disk.flush()).await.as_ref().err().map(Error::kind),
        Some(ErrorKind::UnflushedWritesLost)
    );
    // A flush is retried like any other command.
    rig.server.with(|target| {
        target.end_next_with(Outcome::status(status::TASK_ABORTED));
        target.end_next_with(Outcome::status(status::BUSY));
    });
    soon(disk.flush()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_write_that_was_aborted_in_order_is_sent_again() {
    let (rig, disk) = disk_with_keeper(|_| {}, "?timeout=1").await;
    let data = pattern(4096, 3);
    rig.server.with(|target| target.hold());
    let before = rig.server.with(|target| target.commands().len());
    let write = tokio::spawn({
        let (disk, data) = (disk.clone(), data.clone());
        async move { disk.write_at(0, data).await }
    });
    until(|| rig.server.with(|target| target.commands().len()) >= before + 2).await;
    assert_eq!(rig.server.with(|target| target.active_tasks()), 1, "never twice at a time");
    rig.server.with(|target| target.release());
    soon(write).await.unwrap().unwrap();
    assert!(rig.disk.holds(0, &data));
    assert_eq!((disk.status().reconnects, rig.server.with(|target| target.accepted())), (0, 1));
    rig.assert_clean();
}

/// If every attempt of a write ends its session, the write fails after a few attempts, and the error names the
/// write.
#[tokio::test]
async fn a_write_that_ends_every_session_is_given_up() {
    let change = |config: &mut TargetConfig| {
        (config.keys.default_time2wait, config.keys.initial_r2t) = (0, true);
        config.keys.immediate_data = false;
        let close = || Break::receiving(Opcode::DataOut, 0, Effect::Close);
        config.faults = (0..200).map(|connection| close().on_connection(connection)).collect();
    };
    let (rig, disk) = disk_with_keeper(change, "").await;
    let error = soon(disk.write_at(4096, pattern(4096, 4))).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::ReadTargetLog), "{error:?}");
    assert!(error.may_have_executed() && error.fault() == Fault::Target);
    let message = error.to_string();
    let said = "WRITE (16) of blocks 8 to 15 ended its session each time, 5 times in a row";
    assert!(message.starts_with(said), "{message}");
    assert!(message.contains("the target closed the connection"), "{message}");
    assert!(rig.server.with(|target| target.accepted()) <= 9);
    soon(disk.read_at(4096, 4096)).await.unwrap();
    let notes = notes_of(&disk);
    assert!(notes.iter().any(|note| note.contains("WRITE (16) of blocks 8 to 15")), "{notes:?}");
}

/// If every attempt of a flush ends its session, the flush fails after a few attempts, as a write does.
#[tokio::test]
async fn a_flush_that_ends_every_session_is_given_up() {
    let (rig, disk) = disk_with_keeper(|config| config.keys.default_time2wait = 0, "").await;
    rig.server.with(|target| {
        // On each connection, the first command after the queries of the unit ends the session.
        let next = target.commands().len() as u32;
        let close = || Break::receiving(Opcode::ScsiCommand, next, Effect::Close);
        let faults = (0..200).map(|connection| close().on_connection(connection));
        target.config_mut().faults.extend(faults);
    });
    let error = soon(disk.flush()).await.unwrap_err();
    let said = "SYNCHRONIZE CACHE ended its session each time, 5 times in a row";
    assert!(error.to_string().starts_with(said), "{error}");
    assert!(rig.server.with(|target| target.accepted()) <= 9);
}

#[tokio::test]
async fn a_url_sets_the_patience_of_its_disk() {
    let (rig, disk) = disk_with_keeper(|_| {}, "?patience=0").await;
    rig.server.with(|target| target.end_next_with(Outcome::status(status::BUSY)));
    let error = soon(disk.read_at(0, 512)).await.unwrap_err();
    assert_eq!(error.status(), Some(Status::BUSY), "{error:?}");
    soon(disk.read_at(0, 512)).await.unwrap();
}

/// Returns sense data in fixed format, after its length (RFC 7143 §11.4.7.2), with this response code (0x70 for a
/// current error, 0x71 for a deferred one), this sense key, and the code of RECOVERED DATA WITH RETRIES.
fn sense(response_code: u8, key: u8) -> Bytes {
    let mut bytes = [0; 20];
    (bytes[1], bytes[2], bytes[4], bytes[9]) = (18, response_code, key, 10);
    (bytes[14], bytes[15]) = (0x17, 0x01);
    Bytes::copy_from_slice(&bytes)
}

/// Opens a disk whose unit sends its statuses in separate responses.
async fn disk_with_responses() -> (Rig, Disk) {
    disk_with_keeper(|config| config.data_in.separate_status = true, "").await
}

/// Makes the next response CHECK CONDITION with this sense data.
fn answer_next(rig: &Rig, sense: Bytes) {
    rig.server.with(|target| {
        let next = target.sent(Opcode::ScsiResponse);
        let edit = |effect| Break::sending(Opcode::ScsiResponse, next, effect);
        let status = Effect::SetByte { at: 3, value: Status::CHECK_CONDITION.0 };
        target.config_mut().faults.extend([edit(status), edit(Effect::SetData(sense))]);
    });
}

/// SPC-4 §4.5.6: RECOVERED ERROR means that the command completed successfully.
#[tokio::test]
async fn a_recovered_error_is_a_success() {
    let (rig, disk) = disk_with_responses().await;
    let data = pattern(65_536, 3);
    answer_next(&rig, sense(0x70, 0x1));
    soon(disk.write_at(0, data.clone())).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    answer_next(&rig, sense(0x70, 0x1));
    assert_eq!(soon(disk.read_at(0, 65_536)).await.unwrap(), data);
    answer_next(&rig, sense(0x70, 0x1));
    soon(disk.flush()).await.unwrap();
    assert_eq!(disk.retries(), 0, "nothing had to be sent again");
    rig.assert_clean();
}

/// A deferred error is about an earlier command, so the command that reports it is sent again.
#[tokio::test]
async fn a_deferred_recovered_error_is_no_success() {
    let (rig, disk) = disk_with_responses().await;
    let data = pattern(65_536, 5);
    answer_next(&rig, sense(0x71, 0x1));
    soon(disk.write_at(0, data.clone())).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    let writes =
        |target: &mut Target| target.commands().iter().filter(|it| it.cdb[0] == 0x8a).count();
    assert_eq!(rig.server.with(writes), 2);
}

/// RECOVERED ERROR is a success only for the bytes that were moved. If data is missing, the command fails.
#[tokio::test]
async fn a_recovered_error_without_the_data_is_none() {
    let (rig, disk) = disk_with_responses().await;
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::new(1, 0x17, 1))));
    let error = soon(disk.read_at(0, 65_536)).await.unwrap_err();
    assert!(error.to_string().contains(" moved 0 bytes instead of "), "{error:?}");
}

/// RFC 7143 §7.8: damaged data is discarded and its command aborted; a retry reads the data. If the target
/// sends GOOD in a separate response before it aborts the command, the retry happens as well.
#[tokio::test]
async fn a_read_whose_data_came_damaged_is_sent_again() {
    for separate_status in [false, true] {
        let change = |config: &mut TargetConfig| {
            config.keys.header_digest = DigestPolicy::Require;
            config.keys.data_digest = DigestPolicy::Require;
            config.data_in.separate_status = separate_status;
        };
        let query = "?header_digest=crc32c&data_digest=crc32c&max_recv_data_segment=8192";
        let (rig, disk) = disk_with_keeper(change, query).await;
        let data = pattern(65_536, 7);
        soon(disk.write_at(0, data.clone())).await.unwrap();
        rig.server.with(|target| {
            let next = target.sent(Opcode::DataIn);
            let damage = Break::sending(Opcode::DataIn, next, Effect::CorruptDataDigest);
            target.config_mut().faults.push(damage);
        });
        assert_eq!(soon(disk.read_at(0, 65_536)).await.unwrap(), data);
        assert_eq!(disk.retries(), 1);
    }
}
