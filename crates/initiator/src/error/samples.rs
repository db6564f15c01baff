//! Creates one error of each kind with sample values, for the page of messages and for tests of programs.
//! This module may change at any time.

use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_pdu::scsi::{DeviceType, FormatError, Lun, Sense, Status};
use iscsi_pdu::{IscsiName, LoginStatus};
use iscsi_session::{LoginError, SessionError, SubmitError, TaskError, TransportError};

use crate::error::advice::Advice;
use crate::error::{
    CallerCause, Cause, Consequence, Error, LinkCause, LoginFailure, SessionCause, SessionFailure,
    UnitCause,
};

const PORTAL: &str = "192.0.2.5:3260";
const READ: &str = "READ (16)";
const WRITE: &str = "WRITE (16)";

/// Returns the error of a login that failed because of `cause`. If `user` is set, the login used CHAP.
pub fn login(cause: LoginError, user: Option<&str>) -> Error {
    let (target, initiator) = ("iqn.2026-01.org.example:disk", "iqn.2026-01.org.example:host");
    let failure = LoginFailure {
        portal: PORTAL.to_owned(),
        target: Some(target.to_owned()),
        initiator: initiator.to_owned(),
        user: user.map(str::to_owned),
        cause,
    };
    SessionCause::Login(failure).into()
}

/// Returns the error of a login that the target refused with this status class and detail.
pub fn refused_login(class: u8, detail: u8) -> Error {
    login(LoginError::Status(LoginStatus { class, detail }), None)
}

/// Returns the error of a session that ended because of `cause` before the request was sent.
pub fn ended(cause: SessionError) -> Error {
    SessionCause::Ended(SessionFailure::new(PORTAL.to_owned(), cause, false)).into()
}

/// Returns the error of a request that ended without a response.
pub fn task(cause: TaskError) -> Error {
    SessionCause::Task { request: READ, cause }.into()
}

/// Returns the error of a session that was closed before the request was sent.
pub fn closed() -> Error {
    Error::closed()
}

/// Returns the error of a flush after a reset.
pub fn unflushed_writes_lost() -> Error {
    UnitCause::UnflushedWritesLost.into()
}

/// Returns the error of a portal where nothing listens.
pub fn refused() -> Error {
    LinkCause::Refused { address: ([192, 0, 2, 5], 3260).into() }.into()
}

/// Returns the error of a logical unit that the target does not have.
pub fn no_such_unit() -> Error {
    let target = format!("iscsi://{PORTAL}/iqn.2026-01.org.example:disk");
    UnitCause::NoSuchUnit { lun: Lun::ZERO, target }.into()
}

/// Returns errors of the network: reasons why no connection was opened.
pub fn of_the_link() -> Vec<Error> {
    let (host, reason) = ("target.example".to_owned(), "no address".to_owned());
    let address = ([192, 0, 2, 5], 3260).into();
    let not_followed = |reason, advice| LinkCause::NotFollowed {
        by: [192, 0, 2, 5].into(),
        portal: "198.51.100.5:3260".to_owned(),
        reason,
        advice,
    };
    let causes = [
        LinkCause::HostUnknown { host: host.clone(), reason: reason.clone() },
        LinkCause::NameService { host, reason },
        LinkCause::Refused { address },
        LinkCause::TimedOut { portal: PORTAL.to_owned() },
        LinkCause::Failed { address, reason: "No route to host".to_owned() },
        LinkCause::NotTrusted {
            address,
            reason: "invalid peer certificate: UnknownIssuer".to_owned(),
        },
        LinkCause::NoHandshake { address },
        LinkCause::TlsOptions {
            reason: "ca.pem holds no certificate: No such file or directory".to_owned(),
        },
        LinkCause::NoTls,
        not_followed("and no redirection is followed (redirects=never)", Advice::NamePortal),
        not_followed(
            "another host, which need not prove that it is the target",
            Advice::AllowRedirect,
        ),
        not_followed(
            "an address of this host or its link alone, where the target is not",
            Advice::CorrectPortal,
        ),
    ];
    causes.map(Error::from).into()
}

/// Returns errors of a program that made a request which cannot be executed, or made it too late.
pub fn of_the_program() -> Vec<Error> {
    vec![
        CallerCause::Entropy("no such device".to_owned()).into(),
        closed(),
        CallerCause::ClassClosed.into(),
        Cause::from(SubmitError::TooLong).into(),
        CallerCause::TooManySessions.into(),
        CallerCause::NoRuntime.into(),
        CallerCause::InsideRuntime.into(),
        CallerCause::RuntimeNotStarted("Resource temporarily unavailable (os error 11)".to_owned())
            .into(),
        CallerCause::OutOfRange { offset: 1 << 30, len: 512, capacity: 1 << 30 }.into(),
        CallerCause::NotWholeBlocks { len: 100, block_size: 512 }.into(),
        task(TaskError::TimedOut),
    ]
}

/// Returns errors of a unit, or of its responses.
pub fn of_the_unit() -> Vec<Error> {
    let text = |text: &str| text.to_owned();
    let lun = Lun::ZERO;
    let (expected, found) = (
        text("naa.6001405a0000000000000000000000a1"),
        text("naa.6001405a0000000000000000000000b2"),
    );
    vec![
        no_such_unit(),
        UnitCause::UnitGone(lun).into(),
        UnitCause::NotABlockDevice { lun, device_type: DeviceType::SEQUENTIAL_ACCESS }.into(),
        UnitCause::WriteProtected(lun).into(),
        UnitCause::SerialNumber { expected: text("4711"), found: text("0001") }.into(),
        UnitCause::DifferentUnits { portal: text(PORTAL), expected: expected.clone(), found }
            .into(),
        UnitCause::UnprovenUnit {
            portal: text(PORTAL),
            expected,
            why: text("the unit there does not say that name"),
        }
        .into(),
        UnitCause::BlockSizeChanged { before: 512, now: 4096 }.into(),
        UnitCause::CapacityChanged { before: 1 << 30, now: 1 << 29 }.into(),
        UnitCause::MediumChanged.into(),
        UnitCause::Length { command: READ, expected: 4096, moved: 512 }.into(),
        UnitCause::Format {
            command: "INQUIRY",
            why: FormatError::TooShort { format: "standard INQUIRY data", len: 4, needed: 36 },
        }
        .into(),
        Cause::from(TextError::TooLong { len: 1 << 24 }).into(),
        UnitCause::Unsupported("UNMAP").into(),
    ]
}

/// Returns errors of a disk and its writes when sessions are lost.
pub fn of_lost_sessions() -> Vec<Error> {
    let lost = || ended(TransportError::Closed.into());
    vec![
        Consequence::NotReopened { lost: lost(), why: refused() }.into(),
        Consequence::EndsSessions {
            command: WRITE,
            blocks: Some(2048..4096),
            times: 5,
            cause: lost(),
        }
        .into(),
        UnitCause::OverlapsUnsettled { offset: 1 << 20, len: 4096 }.into(),
        Consequence::Unsettled { why: lost() }.into(),
        unflushed_writes_lost(),
    ]
}

/// Returns errors of reservation keys.
pub fn of_reservations() -> Vec<Error> {
    let key = ReservationKey(0xa1);
    let why = ended(TransportError::Closed.into());
    vec![
        UnitCause::Preempted { key }.into(),
        UnitCause::StillReserved { key }.into(),
        Consequence::StillRegistered { key, why }.into(),
        UnitCause::RegisteredByAnother { key }.into(),
        CallerCause::NoReservationKey.into(),
    ]
}

/// Returns errors of a wrong initiator name, of each kind of status, and of sense data for each advice.
pub fn of_commands() -> Vec<Error> {
    let statuses = [Status::RESERVATION_CONFLICT, Status::BUSY, Status::CHECK_CONDITION];
    let statuses = statuses.map(|status| UnitCause::Status { command: WRITE, status }.into());
    let senses = [
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
        let sense = Sense::decode(&bytes).ok()?;
        Some(UnitCause::CheckCondition { command, sense }.into())
    };
    let name = IscsiName::parse("host").err().map(Error::from);
    name.into_iter().chain(statuses).chain(senses.into_iter().filter_map(check)).collect()
}
