//! Tests of errors of a stream over a disk when the unit fails in the middle of it.

use std::io;

use crate::support::{Rig, pattern, soon};
use iscsi_initiator::{DiskStream, Error, ErrorKind, Options, Session};
use iscsi_testkit::scsi::{Sense, status};
use iscsi_testkit::target::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Number of bytes that a test writes to a stream before each flush, or reads from it: enough for four requests,
/// because a stream sends requests of 256 KiB.
const RUN: usize = 1 << 20;

async fn rig_with_stream() -> (Rig, Session, DiskStream) {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    (rig, session, disk.stream(0))
}

/// Writes and flushes `RUN` bytes successfully, calls `between`, and returns the error of writing and flushing the
/// next `RUN` bytes.
async fn second_run(rig: &Rig, stream: &mut DiskStream, between: impl FnOnce(&Rig)) -> io::Error {
    let data = pattern(RUN, 1);
    soon(stream.write_all(&data)).await.unwrap();
    soon(stream.flush()).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    between(rig);
    let end = async {
        stream.write_all(&pattern(RUN, 2)).await?;
        stream.flush().await
    };
    soon(end).await.unwrap_err()
}

fn assert_is(error: &io::Error, io_kind: io::ErrorKind, kind: ErrorKind) {
    assert_eq!(error.kind(), io_kind, "{error}");
    let kept = error.get_ref().and_then(|kept| kept.downcast_ref::<Error>()).unwrap();
    assert_eq!(kept.kind(), kind, "{error}");
}

#[tokio::test]
async fn a_unit_that_fails_in_the_middle_of_a_run_says_why() {
    let check = |key, asc, ascq| Outcome::check(Sense::new(key, asc, ascq));
    for (outcome, io_kind, kind) in [
        (check(7, 0x27, 7), io::ErrorKind::StorageFull, ErrorKind::OutOfSpace),
        (check(7, 0x27, 0), io::ErrorKind::ReadOnlyFilesystem, ErrorKind::WriteProtected),
        (check(3, 0x0c, 0), io::ErrorKind::Other, ErrorKind::Medium),
        (
            Outcome::status(status::RESERVATION_CONFLICT),
            io::ErrorKind::PermissionDenied,
            ErrorKind::ReservationConflict,
        ),
    ] {
        let (rig, _session, mut stream) = rig_with_stream().await;
        let fail = |rig: &Rig| rig.server.with(|target| target.end_next_with(outcome));
        assert_is(&second_run(&rig, &mut stream, fail).await, io_kind, kind);
        rig.assert_clean();
    }
}

/// After a failed write, every call fails. If a flush succeeded then, it would confirm data that is not on the
/// disk.
#[tokio::test]
async fn a_failed_write_fails_every_call_after_it() {
    let (rig, _session, mut stream) = rig_with_stream().await;
    let unwritten = Outcome::check(Sense::new(3, 0x0c, 0));
    let fail = |rig: &Rig| rig.server.with(|target| target.end_next_with(unwritten));
    second_run(&rig, &mut stream, fail).await;
    for _ in 0..2 {
        let ends = [
            soon(stream.flush()).await,
            soon(stream.write_all(&pattern(512, 3))).await,
            soon(stream.shutdown()).await,
        ];
        for end in ends {
            assert_is(&end.unwrap_err(), io::ErrorKind::Other, ErrorKind::Medium);
        }
    }
    let mut another = stream.disk().stream(0);
    soon(another.write_all(&pattern(512, 3))).await.unwrap();
    soon(another.flush()).await.unwrap();
    rig.assert_clean();
}

/// A caller that gets an error from a write may assume that none of its bytes were accepted. So a write that
/// has accepted bytes returns their number, even if they fail immediately.
#[tokio::test]
async fn a_write_that_took_bytes_says_so_also_when_they_fail_at_once() {
    let (_rig, session, mut stream) = rig_with_stream().await;
    soon(session.logout()).await.unwrap();
    let taken = soon(stream.write(&pattern(RUN, 1))).await.unwrap();
    assert_eq!(stream.position(), taken as u64);
    let error = soon(stream.flush()).await.unwrap_err();
    assert_is(&error, io::ErrorKind::NotConnected, ErrorKind::Closed);
    assert_eq!(stream.position(), taken as u64);
}

#[tokio::test]
async fn a_unit_that_becomes_write_protected_in_the_middle_of_a_run_says_so() {
    let (rig, _session, mut stream) = rig_with_stream().await;
    let error = second_run(&rig, &mut stream, |rig| rig.disk.set_read_only(true)).await;
    assert_is(&error, io::ErrorKind::ReadOnlyFilesystem, ErrorKind::WriteProtected);
    assert!(rig.disk.holds(0, &pattern(RUN, 1)));
}

#[tokio::test]
async fn a_read_that_the_medium_fails_says_so() {
    let (rig, _session, mut stream) = rig_with_stream().await;
    let unread = Outcome::check(Sense::new(3, 0x11, 0));
    rig.server.with(|target| target.end_next_with(unread));
    let error = soon(stream.read_u8()).await.unwrap_err();
    assert_is(&error, io::ErrorKind::Other, ErrorKind::Medium);
}

/// After a failed read, data that was read ahead is not returned at the wrong offset.
#[tokio::test]
async fn a_read_after_one_that_failed_begins_where_that_did() {
    let (rig, _session, mut stream) = rig_with_stream().await;
    let data = pattern(2 * RUN, 1);
    soon(stream.disk().write_at(0, data.clone())).await.unwrap();
    let unread = Outcome::check(Sense::new(3, 0x11, 0));
    rig.server.with(|target| target.end_next_with(unread));
    let mut bytes = vec![0; RUN];
    let error = soon(stream.read(&mut bytes)).await.unwrap_err();
    assert_is(&error, io::ErrorKind::Other, ErrorKind::Medium);
    assert_eq!(stream.position(), 0);
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert!(bytes == data[..RUN], "these are bytes of another place");
    assert_eq!(stream.position(), RUN as u64);
    rig.assert_clean();
}

#[tokio::test]
async fn a_lost_connection_and_a_logout_are_told_apart() {
    let (rig, session, mut stream) = rig_with_stream().await;
    soon(session.logout()).await.unwrap();
    let error = soon(stream.read_u8()).await.unwrap_err();
    assert_is(&error, io::ErrorKind::NotConnected, ErrorKind::Closed);
    rig.assert_clean();

    let (rig, session, mut stream) = rig_with_stream().await;
    rig.server.stop().await;
    assert!(soon(session.closed()).await.is_err());
    let error = soon(stream.read_u8()).await.unwrap_err();
    assert_is(&error, io::ErrorKind::BrokenPipe, ErrorKind::ConnectionLost);
}

/// Writes that a stream executes in the background delay no other request, even if no task polls the stream.
#[tokio::test]
async fn a_stream_that_is_left_alone_holds_nothing_back() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let mut stream = disk.stream(0);
    soon(stream.write_all(&pattern(RUN, 1))).await.unwrap();
    // The order of the two writes is not defined.
    soon(disk.write_at(0, pattern(RUN, 2))).await.unwrap();
    soon(disk.flush()).await.unwrap();
    soon(stream.flush()).await.unwrap();
}
