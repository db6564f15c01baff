//! Sessions, units and their commands.

use iscsi_examples_common::sentence::words;
use iscsi_initiator::scsi::{Lun, ReservationKey, Sense, Status};
use iscsi_initiator::{Error, IscsiName, SessionFailure};
use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::{DeviceType, FormatError};
use iscsi_session::{ProtocolError, SessionError, SubmitError, TaskError, Timer, TransportError};

use super::{Row, Table};

const ERROR: &str = include_str!("../../../../crates/initiator/src/error.rs");
const SESSION: &str = include_str!("../../../../crates/session/src/error.rs");
const PORTAL: &str = "192.0.2.5:3260";
const READ: &str = "READ (16)";
const WRITE: &str = "WRITE (16)";

pub(super) fn tables() -> Vec<Table> {
    let ends = Table::new("A session ends", ("SessionError", SESSION), ends());
    let transports = Table::new("A connection is lost", ("TransportError", SESSION), transports());
    let tasks = Table::new("A command has no answer", ("TaskError", SESSION), tasks());
    let all = Table::new("A unit, and its commands", ("Error", ERROR), units());
    vec![
        // What a login says is in a table of its own.
        ends.elsewhere(&["Login"]),
        transports,
        tasks,
        all.elsewhere(&["Url", "Connect", "Login", "Session"]),
    ]
}

fn row(error: &Error) -> Row {
    Row::new(error, error.advice().map(|advice| words(advice, error)))
}

fn end(cause: SessionError) -> Error {
    Error::Session(Box::new(SessionFailure::new(PORTAL.to_owned(), cause, false)))
}

fn ends() -> Vec<Row> {
    let causes = [
        ProtocolError::HeaderDigest.into(),
        ProtocolError::Unexpected { pdu: "SCSI Response" }.into(),
        TransportError::Closed.into(),
        SessionError::TimedOut(Timer::NopResponse),
        SessionError::AbortRefused,
        SessionError::DroppedByTarget { time2wait: 2, time2retain: 20 },
        SessionError::LogoutRequested,
        SessionError::RedirectLoop,
    ];
    let row = |cause: SessionError| {
        let error = end(cause.clone());
        Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
    };
    causes.into_iter().map(row).collect()
}

fn transports() -> Vec<Row> {
    let causes = [
        TransportError::Connect("No route to host (os error 113)".to_owned()),
        TransportError::Closed,
        TransportError::Io("Connection reset by peer (os error 104)".to_owned()),
        TransportError::PathMtu("packets of 9000 bytes do not arrive, shorter ones do".to_owned()),
    ];
    let row = |cause: TransportError| {
        let error = end(cause.clone().into());
        Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
    };
    causes.into_iter().map(row).collect()
}

fn tasks() -> Vec<Row> {
    let lost = || SessionError::from(TransportError::Closed);
    let causes = [
        TaskError::Session { cause: lost(), sent: true },
        TaskError::ConnectionLost { cause: lost(), sent: true },
        TaskError::Closed,
        TaskError::Aborted,
        TaskError::Withdrawn,
        TaskError::TimedOut,
        TaskError::TargetFailure(iscsi_pdu::ServiceResponse(1)),
        TaskError::DataMissing { expected: 1024, transferred: 512 },
        TaskError::DataDigest,
        TaskError::Rejected {
            reason: iscsi_pdu::RejectReason::COMMAND_NOT_SUPPORTED,
            header: bytes::Bytes::new(),
        },
    ];
    let row = |cause: TaskError| {
        let error = Error::Task { request: READ, cause: cause.clone() };
        Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
    };
    causes.into_iter().map(row).collect()
}

/// What a unit answers: a key and a code of the standard, for each advice that there is.
fn answers() -> impl Iterator<Item = Error> {
    let answers = [
        (WRITE, 0x7, 0x27, 0x07),
        (WRITE, 0x7, 0x27, 0x00),
        (READ, 0x3, 0x11, 0x00),
        (READ, 0x4, 0x44, 0x00),
        (READ, 0x5, 0x25, 0x00),
        (READ, 0x2, 0x04, 0x01),
        (READ, 0x2, 0x04, 0x0b),
        (READ, 0x2, 0x08, 0x00),
        (WRITE, 0x2, 0x08, 0x00),
        (READ, 0x5, 0x24, 0x00),
        (READ, 0x6, 0x2a, 0x09),
    ];
    let check = |(command, key, asc, ascq)| {
        let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
        let sense = Sense::decode(&bytes).ok()?.into();
        Some(Error::CheckCondition { command, sense })
    };
    answers.into_iter().filter_map(check)
}

fn units() -> Vec<Row> {
    let statuses = [Status::RESERVATION_CONFLICT, Status::BUSY, Status::CHECK_CONDITION];
    let statuses = statuses.map(|status| Error::Status { command: WRITE, status });
    let name = IscsiName::parse("host").err().map(Error::from);
    let lists = [of_the_program(), of_the_unit(), of_lost_sessions(), of_reservations()];
    let all = lists.into_iter().flatten().chain(name).chain(statuses).chain(answers());
    all.map(|error| row(&error)).collect()
}

fn of_the_program() -> Vec<Error> {
    vec![
        Error::NoUnitNamed,
        Error::Entropy("no such device".to_owned()),
        Error::Closed,
        Error::ClassClosed,
        SubmitError::TooLong.into(),
        Error::TooManySessions,
        Error::NoRuntime,
        Error::InsideRuntime,
        Error::RuntimeNotStarted("Resource temporarily unavailable (os error 11)".to_owned()),
        Error::OutOfRange { offset: 1 << 30, len: 512, capacity: 1 << 30 },
        Error::NotWholeBlocks { len: 100, block_size: 512 },
        Error::Task { request: READ, cause: TaskError::TimedOut },
    ]
}

fn of_the_unit() -> Vec<Error> {
    let text = |text: &str| text.to_owned();
    let lun = Lun::ZERO;
    let target = text("iscsi://192.0.2.5:3260/iqn.2026-01.org.example:disk");
    let (expected, found) = (
        text("naa.6001405a0000000000000000000000a1"),
        text("naa.6001405a0000000000000000000000b2"),
    );
    vec![
        Error::NoSuchUnit { lun, target },
        Error::UnitGone(lun),
        Error::NotABlockDevice { lun, device_type: DeviceType::SEQUENTIAL_ACCESS },
        Error::WriteProtected(lun),
        Error::SerialNumber { expected: text("4711"), found: text("0001") },
        Error::DifferentUnits { portal: text(PORTAL), expected: expected.clone(), found },
        Error::UnprovenUnit {
            portal: text(PORTAL),
            expected,
            why: text("the unit there does not say that name"),
        },
        Error::BlockSizeChanged { before: 512, now: 4096 },
        Error::CapacityChanged { before: 1 << 30, now: 1 << 29 },
        Error::MediumChanged,
        Error::Length { command: READ, expected: 4096, moved: 512 },
        Error::Format {
            command: "INQUIRY",
            why: FormatError::TooShort { format: "standard INQUIRY data", len: 4, needed: 36 },
        },
        Error::Targets(TextError::TooLong { len: 1 << 24 }),
        Error::Unsupported("UNMAP"),
    ]
}

fn of_lost_sessions() -> Vec<Error> {
    let lost = || Box::new(end(TransportError::Closed.into()));
    let refused = iscsi_initiator::ConnectError::Refused { address: ([192, 0, 2, 5], 3260).into() };
    vec![
        Error::NotReopened { lost: lost(), why: Box::new(refused.into()) },
        Error::EndsSessions { command: WRITE, blocks: Some(2048..4096), times: 5, cause: lost() },
        Error::OverlapsUnsettled { offset: 1 << 20, len: 4096 },
        Error::Unsettled { why: lost() },
        Error::UnflushedWritesLost,
    ]
}

fn of_reservations() -> Vec<Error> {
    let key = ReservationKey(0xa1);
    let why = || Box::new(end(TransportError::Closed.into()));
    vec![
        Error::Preempted { key },
        Error::StillReserved { key },
        Error::StillRegistered { key, why: why() },
        Error::RegisteredByAnother { key },
        Error::NoReservationKey,
    ]
}
