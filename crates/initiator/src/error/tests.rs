//! Every error has its kind, and the kinds agree with the rest of what an error says.

use std::collections::HashSet;
use std::mem::discriminant;
use std::net::IpAddr;

use bytes::Bytes;
use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_pdu::{IscsiName, LoginStatus, RejectReason, ServiceResponse};
use iscsi_session::{
    AuthenticationError, LoginError, ProtocolError, SessionError, Timer, TransportError,
};

use super::*;

const PORTAL: &str = "192.0.2.1:3260";
const COMMAND: &str = "WRITE (16)";
const INITIATOR: &str = "iqn.2026-01.org.example:host";

fn login(cause: LoginError) -> Error {
    Error::Login(Box::new(LoginFailure::new(PORTAL.to_owned(), INITIATOR.to_owned(), cause)))
}

fn refused(class: u8, detail: u8) -> Error {
    login(LoginError::Status(LoginStatus { class, detail }))
}

fn session(cause: SessionError, may_have_executed: bool) -> Error {
    Error::Session(Box::new(SessionFailure::new(PORTAL.to_owned(), cause, may_have_executed)))
}

fn lost(may_have_executed: bool) -> Error {
    session(TransportError::Closed.into(), may_have_executed)
}

fn not_reopened(may_have_executed: bool, why: Error) -> Error {
    Error::NotReopened { lost: Box::new(lost(may_have_executed)), why: Box::new(why) }
}

fn task(cause: TaskError) -> Error {
    Error::Task { request: COMMAND, cause }
}

fn rejected(reason: RejectReason) -> Error {
    task(TaskError::Rejected { reason, header: Bytes::new() })
}

fn check(key: u8, asc: u8, ascq: u8) -> Error {
    Error::CheckCondition { command: COMMAND, sense: sense(key, asc, ascq) }
}

fn sense(key: u8, asc: u8, ascq: u8) -> Box<Sense> {
    let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
    Box::new(Sense::decode(&bytes).unwrap())
}

/// Errors of the way to the target, and of the login.
fn of_the_way() -> Vec<(Error, ErrorKind)> {
    let address = "192.0.2.1:3260".parse().unwrap();
    let (host, reason) = ("disk.example".to_owned(), "no address".to_owned());
    let name = IscsiName::parse("host").unwrap_err();
    let authentication = |error: AuthenticationError| login(error.into());
    let silent = ConnectError::NameService { host: host.clone(), reason: reason.clone() };
    vec![
        (UrlError::PortalOnly.into(), ErrorKind::InvalidInput),
        (UrlError::Iser.into(), ErrorKind::Unsupported),
        (name.into(), ErrorKind::InvalidInput),
        (Error::Entropy("none".to_owned()), ErrorKind::Other),
        (ConnectError::HostUnknown { host, reason: reason.clone() }.into(), ErrorKind::NotFound),
        (silent.into(), ErrorKind::Unreachable),
        (ConnectError::Refused { address }.into(), ErrorKind::Refused),
        (ConnectError::TimedOut { portal: PORTAL.to_owned() }.into(), ErrorKind::TimedOut),
        (ConnectError::Failed { address, reason }.into(), ErrorKind::Unreachable),
        (refused(2, 0), ErrorKind::Other),
        (refused(2, 1), ErrorKind::Authentication),
        (refused(2, 2), ErrorKind::Authentication),
        (refused(2, 3), ErrorKind::NotFound),
        (refused(2, 4), ErrorKind::NotFound),
        (refused(2, 5), ErrorKind::Unsupported),
        (refused(2, 6), ErrorKind::Other),
        (refused(2, 9), ErrorKind::Unsupported),
        (refused(3, 1), ErrorKind::Transient),
        (refused(3, 2), ErrorKind::Transient),
        (authentication(AuthenticationError::WrongResponse), ErrorKind::Authentication),
        (authentication(AuthenticationError::Missing("CHAP_R")), ErrorKind::Protocol),
        (login(LoginError::TooManyExchanges(32)), ErrorKind::Protocol),
        (login(LoginError::PortalGroup { expected: 1, found: 2 }), ErrorKind::UnitChanged),
        (Error::OverlapsUnsettled { offset: 512, len: 512 }, ErrorKind::Unsettled),
        (Error::Unsettled { why: Box::new(lost(true)) }, ErrorKind::Unsettled),
        (
            Error::StillRegistered { key: ReservationKey(1), why: Box::new(refused(3, 2)) },
            ErrorKind::Transient,
        ),
        (Error::Targets(TextError::TooLong { len: 1 << 20 }), ErrorKind::Protocol),
    ]
}

/// Errors of a session, and of a task without a status.
fn of_a_session() -> Vec<(Error, ErrorKind)> {
    let damage = || SessionError::from(ProtocolError::HeaderDigest);
    let violation = || SessionError::from(ProtocolError::Text("too long"));
    let silence = || SessionError::TimedOut(Timer::NopResponse);
    let dropped = || SessionError::DroppedByTarget { time2wait: 2, time2retain: 20 };
    let connect = || SessionError::from(TransportError::Connect("no route".to_owned()));
    let refused = || Error::from(ConnectError::Refused { address: PORTAL.parse().unwrap() });
    let connection_lost = |sent| TaskError::ConnectionLost { cause: damage(), sent };
    vec![
        (lost(false), ErrorKind::ConnectionLost),
        (lost(true), ErrorKind::MayHaveExecuted),
        (session(damage(), false), ErrorKind::ConnectionLost),
        (session(damage(), true), ErrorKind::MayHaveExecuted),
        (session(dropped(), false), ErrorKind::ConnectionLost),
        (session(SessionError::LogoutRequested, true), ErrorKind::MayHaveExecuted),
        (session(violation(), false), ErrorKind::Protocol),
        (session(violation(), true), ErrorKind::Protocol),
        (session(silence(), true), ErrorKind::TimedOut),
        (session(SessionError::RedirectLoop, false), ErrorKind::Unreachable),
        (session(connect(), false), ErrorKind::Unreachable),
        (Error::Closed, ErrorKind::Closed),
        (Error::ClassClosed, ErrorKind::Closed),
        (SubmitError::Full.into(), ErrorKind::Transient),
        (SubmitError::Closed.into(), ErrorKind::Closed),
        (SubmitError::NoConnection.into(), ErrorKind::InvalidInput),
        (SubmitError::NoTsih.into(), ErrorKind::Unsupported),
        (SubmitError::TooLong.into(), ErrorKind::InvalidInput),
        (SubmitError::WrongSession.into(), ErrorKind::InvalidInput),
        (task(TaskError::Session { cause: dropped(), sent: true }), ErrorKind::MayHaveExecuted),
        (task(connection_lost(true)), ErrorKind::MayHaveExecuted),
        (task(connection_lost(false)), ErrorKind::ConnectionLost),
        (task(TaskError::Closed), ErrorKind::Closed),
        (task(TaskError::Aborted), ErrorKind::Aborted),
        (task(TaskError::TimedOut), ErrorKind::TimedOut),
        (task(TaskError::TargetFailure(ServiceResponse(1))), ErrorKind::MayHaveExecuted),
        (task(TaskError::DataMissing { expected: 1024, transferred: 512 }), ErrorKind::Protocol),
        (task(TaskError::DataDigest), ErrorKind::Transient),
        (rejected(RejectReason::COMMAND_NOT_SUPPORTED), ErrorKind::Unsupported),
        (rejected(RejectReason::IMMEDIATE_COMMAND_REJECT), ErrorKind::Transient),
        (rejected(RejectReason::LONG_OPERATION_REJECT), ErrorKind::Transient),
        (rejected(RejectReason::DATA_DIGEST_ERROR), ErrorKind::Transient),
        (rejected(RejectReason::INVALID_PDU_FIELD), ErrorKind::Protocol),
        (not_reopened(true, refused()), ErrorKind::Refused),
        (not_reopened(true, lost(false)), ErrorKind::MayHaveExecuted),
        (not_reopened(false, lost(true)), ErrorKind::ConnectionLost),
        (not_reopened(true, Error::Closed), ErrorKind::MayHaveExecuted),
        (not_reopened(true, Error::CapacityChanged { before: 2, now: 1 }), ErrorKind::UnitChanged),
        (
            Error::EndsSessions {
                command: COMMAND,
                blocks: None,
                times: 5,
                cause: Box::new(lost(true)),
            },
            ErrorKind::Protocol,
        ),
    ]
}

/// Errors of a unit, and of what was asked of it.
fn of_a_unit() -> Vec<(Error, ErrorKind)> {
    let text = String::new;
    let status = |status| Error::Status { command: COMMAND, status };
    let why = FormatError::TooShort { format: "VPD page", len: 1, needed: 4 };
    let (lun, device_type) = (Lun::ZERO, DeviceType::SEQUENTIAL_ACCESS);
    vec![
        (check(0x3, 0x0c, 0), ErrorKind::Medium),
        (check(0x7, 0x27, 0x07), ErrorKind::OutOfSpace),
        (status(Status::BUSY), ErrorKind::Transient),
        (status(Status::RESERVATION_CONFLICT), ErrorKind::ReservationConflict),
        (Error::Length { command: COMMAND, expected: 512, moved: 0 }, ErrorKind::Protocol),
        (Error::Format { command: COMMAND, why }, ErrorKind::Protocol),
        (Error::NoUnitNamed, ErrorKind::InvalidInput),
        (Error::NoSuchUnit { lun, target: text() }, ErrorKind::NotFound),
        (Error::UnitGone(lun), ErrorKind::UnitChanged),
        (Error::NotABlockDevice { lun, device_type }, ErrorKind::InvalidInput),
        (Error::WriteProtected(lun), ErrorKind::WriteProtected),
        (Error::SerialNumber { expected: text(), found: text() }, ErrorKind::UnitChanged),
        (
            Error::DifferentUnits { portal: text(), expected: text(), found: text() },
            ErrorKind::UnitChanged,
        ),
        (
            Error::UnprovenUnit { portal: text(), expected: text(), why: text() },
            ErrorKind::UnitChanged,
        ),
        (Error::BlockSizeChanged { before: 512, now: 4096 }, ErrorKind::UnitChanged),
        (Error::CapacityChanged { before: 2, now: 1 }, ErrorKind::UnitChanged),
        (Error::MediumChanged, ErrorKind::UnitChanged),
        (Error::OutOfRange { offset: 0, len: 2, capacity: 1 }, ErrorKind::InvalidInput),
        (Error::NotWholeBlocks { len: 1, block_size: 512 }, ErrorKind::InvalidInput),
        (Error::Preempted { key: ReservationKey(0xa) }, ErrorKind::Preempted),
        (Error::StillReserved { key: ReservationKey(0xa) }, ErrorKind::ReservationConflict),
        (Error::RegisteredByAnother { key: ReservationKey(0xb) }, ErrorKind::ReservationConflict),
        (Error::NoReservationKey, ErrorKind::InvalidInput),
        (Error::UnflushedWritesLost, ErrorKind::UnflushedWritesLost),
        (Error::Unsupported("UNMAP"), ErrorKind::Unsupported),
    ]
}

fn all() -> Vec<(Error, ErrorKind)> {
    [of_the_way(), of_a_session(), of_a_unit()].concat()
}

#[test]
fn every_variant_has_its_kind() {
    let all = all();
    for (error, kind) in &all {
        assert_eq!(error.kind(), *kind, "{error:?}");
    }
    let variants: HashSet<_> = all.iter().map(|(error, _)| discriminant(error)).collect();
    assert_eq!(variants.len(), 39, "each variant has a row");
    let kinds: HashSet<_> = all.iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds.len(), 22, "each kind has a row");
}

#[test]
fn kinds_agree_with_what_is_said_of_the_execution() {
    for (error, kind) in all() {
        if kind == ErrorKind::MayHaveExecuted || kind == ErrorKind::Aborted {
            assert!(error.may_have_executed(), "{error:?}");
        }
        if kind == ErrorKind::ConnectionLost || kind == ErrorKind::Closed {
            assert!(!error.may_have_executed(), "{error:?}");
        }
    }
}

/// Copiers of the standard library try again without an end after `Interrupted`, and tasks wait
/// without an end after `WouldBlock`.
#[test]
fn an_io_error_has_a_kind_of_its_own_and_keeps_the_error() {
    for (error, kind) in all() {
        let message = error.to_string();
        let io_error = io::Error::from(error);
        assert_eq!(io_error.kind(), io::ErrorKind::from(kind));
        assert_ne!(io_error.kind(), io::ErrorKind::Interrupted);
        assert_ne!(io_error.kind(), io::ErrorKind::WouldBlock);
        let kept = io_error.get_ref().and_then(|kept| kept.downcast_ref::<Error>()).unwrap();
        assert_eq!((kept.kind(), kept.to_string()), (kind, message));
    }
    let distinct: HashSet<_> =
        all().into_iter().map(|(_, kind)| io::ErrorKind::from(kind)).collect();
    assert_eq!(distinct.len(), 17, "only those that the table in `ErrorKind` names share one");
}

/// Errors of which the variant alone does not say what can be done.
fn with_other_advice() -> Vec<Error> {
    let text = || "x".to_owned();
    let (by, address) = (IpAddr::from([192, 0, 2, 1]), "192.0.2.1:3260".parse().unwrap());
    let not_followed =
        |advice| ConnectError::NotFollowed { by, portal: text(), reason: "x", advice };
    let mut with_user =
        LoginFailure::new(text(), text(), LoginError::Status(LoginStatus::AUTHENTICATION_FAILURE));
    with_user.user = Some(text());
    let urls = [
        UrlError::NoHost,
        UrlError::Portal(iscsi_pdu::TargetAddress::parse("[").unwrap_err()),
        UrlError::SecondAt,
        UrlError::AtBehindQuestionMark,
        UrlError::Lun(text()),
        UrlError::Trailing(text()),
        UrlError::NoUser,
        UrlError::MissingPassword(text()),
        UrlError::MissingTargetPassword(text()),
        UrlError::PasswordAlone,
        UrlError::TargetCredentialsAlone,
        UrlError::UnknownOption(text()),
        UrlError::UnknownOptionBehindPassword,
        UrlError::RepeatedOption("x"),
    ];
    let mut errors: Vec<Error> = urls.map(Error::from).into();
    errors.extend(
        [Advice::NamePortal, Advice::AllowRedirect, Advice::CorrectPortal]
            .map(|advice| not_followed(advice).into()),
    );
    errors.extend([
        ConnectError::Refused { address }.into(),
        Error::Login(Box::new(with_user)),
        login(AuthenticationError::MethodRefused.into()),
        login(AuthenticationError::AlgorithmRefused.into()),
        login(AuthenticationError::UserName.into()),
        login(AuthenticationError::ShortSecret.into()),
        login(AuthenticationError::SameSecret.into()),
        session(ProtocolError::HeaderDigest.into(), false),
        session(ProtocolError::Text("x").into(), false),
        session(SessionError::TimedOut(Timer::NopResponse), false),
        check(0x2, 0x08, 0x00),
        check(0x5, 0x25, 0x00),
        check(0x2, 0x04, 0x01),
        check(0x2, 0x04, 0x0b),
        check(0x6, 0x2a, 0x09),
        Error::CheckCondition { command: "READ (16)", sense: sense(0x2, 0x08, 0x00) },
        Error::TooManySessions,
        Error::NoRuntime,
        Error::InsideRuntime,
    ]);
    errors
}

/// Words that are not used would be words that nobody has read.
#[test]
fn every_advice_is_that_of_an_error_and_no_text_holds_its_advice() {
    let errors = all().into_iter().map(|(error, _)| error).chain(with_other_advice());
    let mut found = HashSet::new();
    for error in errors {
        let Some(advice) = error.advice() else { continue };
        assert!(!error.to_string().contains(advice.text()), "{error}");
        found.insert(advice);
    }
    for advice in Advice::ALL {
        assert!(found.contains(advice), "{advice:?} is the advice of no error");
    }
    assert_eq!(found.len(), Advice::ALL.len());
}

/// The advice on an attempt to reconnect is that on the cause.
#[test]
fn advice_comes_from_the_cause() {
    for (error, _) in all() {
        let advice = error.advice();
        assert_eq!(not_reopened(true, error).advice(), advice);
    }
}
