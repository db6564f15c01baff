//! Tests that every error has its kind, and that the kinds agree with the other methods of an error.

use std::collections::HashSet;
use std::error::Error as _;
use std::mem::discriminant;
use std::net::IpAddr;

use bytes::Bytes;
use iscsi_pdu::keys::TextError;
use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_pdu::scsi::{DeviceType, FormatError, Lun};
use iscsi_pdu::{IscsiName, LoginStatus, RejectReason, ServiceResponse};
use iscsi_session::{
    AuthenticationError, LoginError, ProtocolError, SessionError, TaskError, Timer, TransportError,
};

use super::*;

const PORTAL: &str = "192.0.2.1:3260";
const COMMAND: &str = "WRITE (16)";

fn login(cause: LoginError) -> Error {
    samples::login(cause, None)
}

fn refused(class: u8, detail: u8) -> Error {
    login(LoginError::Status(LoginStatus { class, detail }))
}

fn session(cause: SessionError, may_have_executed: bool) -> Error {
    Error::from(SessionCause::Ended(SessionFailure::new(
        PORTAL.to_owned(),
        cause,
        may_have_executed,
    )))
}

fn lost(may_have_executed: bool) -> Error {
    session(TransportError::Closed.into(), may_have_executed)
}

fn not_reopened(may_have_executed: bool, why: Error) -> Error {
    Error::from(Consequence::NotReopened { lost: lost(may_have_executed), why })
}

fn task(cause: TaskError) -> Error {
    Error::from(SessionCause::Task { request: COMMAND, cause })
}

fn rejected(reason: RejectReason) -> Error {
    task(TaskError::Rejected { reason, header: Bytes::new() })
}

fn check(key: u8, asc: u8, ascq: u8) -> Error {
    Error::from(UnitCause::CheckCondition { command: COMMAND, sense: sense(key, asc, ascq) })
}

fn sense(key: u8, asc: u8, ascq: u8) -> Sense {
    let bytes = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
    Sense::decode(&bytes).unwrap()
}

fn not_followed(advice: Advice) -> Error {
    let by = IpAddr::from([192, 0, 2, 1]);
    LinkCause::NotFollowed { by, portal: PORTAL.to_owned(), reason: "x", advice }.into()
}

/// Returns errors of the path to the target, and of the login.
fn of_the_way() -> Vec<(Error, ErrorKind)> {
    let address = "192.0.2.1:3260".parse().unwrap();
    let (host, reason) = ("disk.example".to_owned(), "no address".to_owned());
    let name = IscsiName::parse("host").unwrap_err();
    let authentication = |error: AuthenticationError| login(error.into());
    let silent = LinkCause::NameService { host: host.clone(), reason: reason.clone() };
    vec![
        (UrlError::PortalOnly.into(), ErrorKind::InvalidInput),
        (UrlError::Iser.into(), ErrorKind::Unsupported),
        (name.into(), ErrorKind::InvalidInput),
        (CallerCause::Entropy("none".to_owned()).into(), ErrorKind::Other),
        (LinkCause::HostUnknown { host, reason: reason.clone() }.into(), ErrorKind::NotFound),
        (silent.into(), ErrorKind::Unreachable),
        (LinkCause::Refused { address }.into(), ErrorKind::Refused),
        (LinkCause::TimedOut { portal: PORTAL.to_owned() }.into(), ErrorKind::TimedOut),
        (LinkCause::Failed { address, reason }.into(), ErrorKind::Unreachable),
        (not_followed(Advice::AllowRedirect), ErrorKind::Authentication),
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
        (UnitCause::OverlapsUnsettled { offset: 512, len: 512 }.into(), ErrorKind::Unsettled),
        (Consequence::Unsettled { why: lost(true) }.into(), ErrorKind::Unsettled),
        (
            Consequence::StillRegistered { key: ReservationKey(1), why: refused(3, 2) }.into(),
            ErrorKind::StillRegistered,
        ),
        (SessionCause::Targets(TextError::TooLong { len: 1 << 20 }).into(), ErrorKind::Protocol),
    ]
}

/// Returns errors of a session, and of a task without a status.
fn of_a_session() -> Vec<(Error, ErrorKind)> {
    let damage = || SessionError::from(ProtocolError::HeaderDigest);
    let violation = || SessionError::from(ProtocolError::Text("too long"));
    let silence = || SessionError::TimedOut(Timer::NopResponse);
    let dropped = || SessionError::DroppedByTarget { time2wait: 2, time2retain: 20 };
    let connect = || SessionError::from(TransportError::Connect("no route".to_owned()));
    let refused = || Error::from(LinkCause::Refused { address: PORTAL.parse().unwrap() });
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
        (Error::closed(), ErrorKind::Closed),
        (CallerCause::ClassClosed.into(), ErrorKind::Closed),
        (Cause::from(SubmitError::Full).into(), ErrorKind::Transient),
        (Cause::from(SubmitError::Closed).into(), ErrorKind::Closed),
        (Cause::from(SubmitError::NoConnection).into(), ErrorKind::InvalidInput),
        (Cause::from(SubmitError::NoTsih).into(), ErrorKind::Unsupported),
        (Cause::from(SubmitError::TooLong).into(), ErrorKind::InvalidInput),
        (Cause::from(SubmitError::WrongSession).into(), ErrorKind::InvalidInput),
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
        (not_reopened(true, Error::closed()), ErrorKind::MayHaveExecuted),
        (
            not_reopened(true, Error::from(UnitCause::CapacityChanged { before: 2, now: 1 })),
            ErrorKind::UnitChanged,
        ),
        (
            Consequence::EndsSessions {
                command: COMMAND,
                blocks: None,
                times: 5,
                cause: lost(true),
            }
            .into(),
            ErrorKind::Protocol,
        ),
    ]
}

/// Returns errors of a unit, and of requests to it.
fn of_a_unit() -> Vec<(Error, ErrorKind)> {
    let text = String::new;
    let status = |status| Error::from(UnitCause::Status { command: COMMAND, status });
    let why = FormatError::TooShort { format: "VPD page", len: 1, needed: 4 };
    let (lun, device_type) = (Lun::ZERO, DeviceType::SEQUENTIAL_ACCESS);
    vec![
        (check(0x3, 0x0c, 0), ErrorKind::Medium),
        (check(0x7, 0x27, 0x07), ErrorKind::OutOfSpace),
        (status(Status::BUSY), ErrorKind::Transient),
        (status(Status::RESERVATION_CONFLICT), ErrorKind::ReservationConflict),
        (
            UnitCause::Length { command: COMMAND, expected: 512, moved: 0 }.into(),
            ErrorKind::Protocol,
        ),
        (UnitCause::Format { command: COMMAND, why }.into(), ErrorKind::Protocol),
        (UnitCause::NoSuchUnit { lun, target: text() }.into(), ErrorKind::NotFound),
        (UnitCause::UnitGone(lun).into(), ErrorKind::UnitChanged),
        (UnitCause::NotABlockDevice { lun, device_type }.into(), ErrorKind::InvalidInput),
        (UnitCause::WriteProtected(lun).into(), ErrorKind::WriteProtected),
        (
            UnitCause::SerialNumber { expected: text(), found: text() }.into(),
            ErrorKind::UnitChanged,
        ),
        (
            UnitCause::DifferentUnits { portal: text(), expected: text(), found: text() }.into(),
            ErrorKind::UnitChanged,
        ),
        (
            UnitCause::UnprovenUnit { portal: text(), expected: text(), why: text() }.into(),
            ErrorKind::UnitChanged,
        ),
        (UnitCause::BlockSizeChanged { before: 512, now: 4096 }.into(), ErrorKind::UnitChanged),
        (UnitCause::CapacityChanged { before: 2, now: 1 }.into(), ErrorKind::UnitChanged),
        (UnitCause::MediumChanged.into(), ErrorKind::UnitChanged),
        (UnitCause::Preempted { key: ReservationKey(0xa) }.into(), ErrorKind::Preempted),
        (
            UnitCause::StillReserved { key: ReservationKey(0xa) }.into(),
            ErrorKind::ReservationConflict,
        ),
        (
            UnitCause::RegisteredByAnother { key: ReservationKey(0xb) }.into(),
            ErrorKind::ReservationConflict,
        ),
        (UnitCause::UnflushedWritesLost.into(), ErrorKind::UnflushedWritesLost),
        (UnitCause::Unsupported("UNMAP").into(), ErrorKind::Unsupported),
    ]
}

fn all() -> Vec<(Error, ErrorKind)> {
    [of_the_way(), of_a_session(), of_a_unit(), of_the_program()].concat()
}

/// Returns errors of the calling program itself.
fn of_the_program() -> Vec<(Error, ErrorKind)> {
    let whole = CallerCause::NotWholeBlocks { len: 1, block_size: 512 };
    let range = CallerCause::OutOfRange { offset: 0, len: 2, capacity: 1 };
    vec![
        (UrlError::NoUnit.into(), ErrorKind::InvalidInput),
        (range.into(), ErrorKind::InvalidInput),
        (whole.into(), ErrorKind::InvalidInput),
        (CallerCause::NoReservationKey.into(), ErrorKind::InvalidInput),
        (CallerCause::TooManySessions.into(), ErrorKind::InvalidInput),
        (CallerCause::NoRuntime.into(), ErrorKind::InvalidInput),
        (CallerCause::InsideRuntime.into(), ErrorKind::InvalidInput),
        (CallerCause::RuntimeNotStarted("none".to_owned()).into(), ErrorKind::Other),
    ]
}

/// Returns the side with which the cause of an error lies, and the variant of the cause.
fn variant(error: &Error) -> (&'static str, String) {
    match error.cause() {
        Cause::Caller(cause) => ("caller", format!("{:?}", discriminant(cause))),
        Cause::Unit(cause) => ("unit", format!("{:?}", discriminant(cause))),
        Cause::Session(cause) => ("session", format!("{:?}", discriminant(cause))),
        Cause::Link(cause) => ("link", format!("{:?}", discriminant(cause))),
        Cause::Consequence(cause) => ("consequence", format!("{:?}", discriminant(cause))),
    }
}

#[test]
fn an_error_is_one_pointer_and_goes_to_any_thread() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Error>();
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
}

/// The error of the layer below is available as the source.
#[test]
fn the_source_is_the_error_of_the_layer_below() {
    fn source<T: std::error::Error + 'static>(error: &Error) -> &T {
        error.source().unwrap().downcast_ref().unwrap()
    }
    assert_eq!(source::<UrlError>(&UrlError::NoHost.into()), &UrlError::NoHost);
    assert_eq!(source::<TaskError>(&task(TaskError::Aborted)), &TaskError::Aborted);
    assert_eq!(source::<SubmitError>(&Cause::from(SubmitError::Full).into()), &SubmitError::Full);
    assert!(matches!(source::<LoginError>(&refused(2, 1)), LoginError::Status(_)));
    assert!(matches!(source::<SessionError>(&lost(true)), SessionError::Transport(_)));
    let outage = not_reopened(true, refused(3, 1));
    assert_eq!(source::<Error>(&outage).kind(), ErrorKind::Transient);
    assert_eq!(outage.reconnect_error().unwrap().to_string(), refused(3, 1).to_string());
    assert!(check(0x3, 0x11, 0).source().is_none(), "the sense data is no error");
}

#[test]
fn an_error_says_what_it_is_about() {
    let error = check(0x3, 0x11, 0);
    assert_eq!((error.command(), error.status()), (Some(COMMAND), Some(Status::CHECK_CONDITION)));
    assert_eq!(task(TaskError::Aborted).status(), None);
    assert_eq!(not_reopened(true, lost(false)).portal().as_deref(), Some(PORTAL));
    let target = "iscsi://192.0.2.1:3260/iqn.2026-01.org.example:disk";
    let none = UnitCause::NoSuchUnit { lun: Lun::ZERO, target: target.to_owned() };
    assert_eq!(not_reopened(true, none.into()).target_url(), Some(target));
    assert!(lost(true).is_of_session() && Error::closed().is_of_session());
    assert!(!task(TaskError::TimedOut).is_of_session());
}

/// The text that a program logs with `{:?}` begins with the name of the variant.
#[test]
fn the_debug_text_begins_with_the_variant() {
    assert_eq!(format!("{:?}", Error::closed()), "Closed");
    assert_eq!(format!("{:?}", Error::from(UnitCause::Unsupported("X"))), "Unsupported(\"X\")");
}

#[test]
fn every_variant_has_its_kind() {
    let all = all();
    for (error, kind) in &all {
        assert_eq!(error.kind(), *kind, "{error:?}");
    }
    let variants: HashSet<_> = all.iter().map(|(error, _)| variant(error)).collect();
    assert_eq!(variants.len(), 47, "each variant has a row");
    let kinds: HashSet<_> = all.iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds.len(), 23, "each kind has a row");
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

/// No error converts to `Interrupted` or `WouldBlock`: after `Interrupted`, the copy functions of the standard
/// library would retry without end; after `WouldBlock`, tasks would wait without end.
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

/// Returns errors whose variant alone does not decide the advice.
fn with_other_advice() -> Vec<Error> {
    let text = || "x".to_owned();
    let address = "192.0.2.1:3260".parse().unwrap();
    let with_user =
        samples::login(LoginError::Status(LoginStatus::AUTHENTICATION_FAILURE), Some("x"));
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
        UrlError::TlsNotAsked,
        UrlError::TlsPort,
        UrlError::TlsPinAndName,
        UrlError::TlsHalfCertificate,
    ];
    let mut errors: Vec<Error> = urls.map(Error::from).into();
    errors.extend(
        [Advice::NamePortal, Advice::AllowRedirect, Advice::CorrectPortal].map(not_followed),
    );
    errors.extend([
        LinkCause::Refused { address }.into(),
        LinkCause::NotTrusted { address, reason: "x".to_owned() }.into(),
        LinkCause::NoHandshake { address }.into(),
        LinkCause::TlsOptions { reason: "x".to_owned() }.into(),
        LinkCause::NoTls.into(),
        with_user,
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
        Error::from(UnitCause::CheckCondition {
            command: "READ (16)",
            sense: sense(0x2, 0x08, 0x00),
        }),
        Error::from(CallerCause::TooManySessions),
        Error::from(CallerCause::NoRuntime),
        Error::from(CallerCause::InsideRuntime),
    ]);
    errors
}

/// Every advice must be used by an error, because the text of an unused advice would never be checked.
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

/// The advice on a failed reconnect is the advice on its cause.
#[test]
fn advice_comes_from_the_cause() {
    for (error, _) in all() {
        let advice = error.advice();
        assert_eq!(not_reopened(true, error).advice(), advice);
    }
}
