//! Tables of messages: sessions, units and their commands.

use iscsi_examples_common::sentence::words;
use iscsi_initiator::{Error, samples};
use iscsi_session::{ProtocolError, SessionError, TaskError, Timer, TransportError};

use super::{Row, Table};

const ERROR: &str = include_str!("../../../../crates/initiator/src/error.rs");
const CALLER: &str = include_str!("../../../../crates/initiator/src/error/caller.rs");
const UNIT: &str = include_str!("../../../../crates/initiator/src/error/unit.rs");
const OF_SESSION: &str = include_str!("../../../../crates/initiator/src/error/session.rs");
const SESSION: &str = include_str!("../../../../crates/session/src/error.rs");

pub(super) fn tables() -> Vec<Table> {
    let ends = Table::new("A session ends", ("SessionError", SESSION), ends());
    let transports = Table::new("A connection is lost", ("TransportError", SESSION), transports());
    let tasks = Table::new("A command has no answer", ("TaskError", SESSION), tasks());
    let all = Table::new("A unit, and its commands", ("UnitCause", UNIT), units());
    vec![
        // The errors of a login have a table of their own.
        ends.elsewhere(&["Login"]),
        transports,
        tasks,
        all.and(("CallerCause", CALLER))
            .and(("SessionCause", OF_SESSION))
            .and(("Consequence", ERROR))
            .elsewhere(&["Url", "Login", "Ended"]),
    ]
}

fn row(error: &Error) -> Row {
    Row::new(error, error.advice().map(|advice| words(advice, error)))
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
        let error = samples::ended(cause.clone());
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
        let error = samples::ended(cause.clone().into());
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
        let error = samples::task(cause.clone());
        Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
    };
    causes.into_iter().map(row).collect()
}

fn units() -> Vec<Row> {
    let lists = [
        samples::of_the_program(),
        samples::of_the_unit(),
        samples::of_lost_sessions(),
        samples::of_reservations(),
        samples::of_commands(),
    ];
    lists.iter().flatten().map(row).collect()
}
