use bytes::Bytes;
use iscsi_session::{SessionError, Timer};

use super::*;

fn sense(deferred: bool, key: u8, asc: u8, ascq: u8) -> [u8; 18] {
    let code = if deferred { 0x71 } else { 0x70 };
    [code, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0]
}

#[test]
fn every_status_has_its_end() {
    for (status, expected) in [
        (Status::GOOD, End::Good),
        (Status::CONDITION_MET, End::Good),
        (Status::BUSY, End::Busy),
        (Status::TASK_SET_FULL, End::Busy),
        (Status::TASK_ABORTED, End::TaskAborted),
        (Status::RESERVATION_CONFLICT, End::ReservationConflict),
        (Status::ACA_ACTIVE, End::Refused),
        (Status(0x22), End::Refused),
        (Status::CHECK_CONDITION, End::Refused),
    ] {
        assert_eq!(End::of(status, &[]), expected, "{status}");
    }
}

#[test]
fn every_sense_has_its_end() {
    for (deferred, key, asc, ascq, expected) in [
        (false, 0x1, 0x17, 0x01, End::Good),
        (false, 0x6, 0x29, 0x00, End::Attention),
        (false, 0x6, 0x04, 0x0b, End::Attention),
        (true, 0x3, 0x0c, 0x00, End::Attention),
        (true, 0x2, 0x04, 0x01, End::Attention),
        (false, 0x2, 0x04, 0x01, End::BecomingReady),
        (false, 0x2, 0x04, 0x09, End::BecomingReady),
        // Formatting a unit removes its earlier data, so it is not a temporary state.
        (false, 0x2, 0x04, 0x04, End::Refused),
        (false, 0x2, 0x04, 0x0a, End::Port(AccessState::Transitioning)),
        (false, 0x2, 0x04, 0x0b, End::Port(AccessState::Standby)),
        (false, 0x2, 0x04, 0x0c, End::Port(AccessState::Unavailable)),
        (false, 0x2, 0x04, 0x12, End::Port(AccessState::Offline)),
        (false, 0x2, 0x3a, 0x00, End::Refused),
        (false, 0x3, 0x11, 0x00, End::Refused),
        (false, 0x5, 0x20, 0x00, End::UnknownCommand),
        (false, 0x5, 0x24, 0x00, End::InvalidField),
        (false, 0xb, 0x47, 0x03, End::AbortedCommand),
        (false, 0xb, 0x24, 0x00, End::AbortedCommand),
    ] {
        let found = End::of(Status::CHECK_CONDITION, &sense(deferred, key, asc, ascq));
        assert_eq!(found, expected, "{deferred} {key:02X}/{asc:02X}/{ascq:02X}");
    }
}

#[test]
fn every_failure_has_its_end() {
    let cause = || SessionError::TimedOut(Timer::Login);
    let rejected = |reason| TaskError::Rejected { reason, header: Bytes::new() };
    for (failure, expected) in [
        (TaskError::Session { cause: cause(), sent: true }, End::SessionLost),
        (TaskError::Session { cause: cause(), sent: false }, End::SessionLost),
        (TaskError::Closed, End::SessionLost),
        (TaskError::ConnectionLost { cause: cause(), sent: true }, End::ConnectionLost),
        (TaskError::Withdrawn, End::Withdrawn),
        (TaskError::Aborted, End::NoAnswer),
        (TaskError::TimedOut, End::TimedOut),
        (TaskError::DataMissing { expected: 2, transferred: 1 }, End::NoAnswer),
        (TaskError::DataDigest, End::Damaged),
        (rejected(RejectReason::DATA_DIGEST_ERROR), End::Damaged),
        (rejected(RejectReason::PROTOCOL_ERROR), End::NoAnswer),
    ] {
        assert_eq!(End::of_failure(&failure), expected, "{failure}");
    }
}
