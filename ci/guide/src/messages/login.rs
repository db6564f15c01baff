//! The way to a target, and the login there.

use iscsi_examples_common::sentence::words;
use iscsi_initiator::{Advice, ConnectError, Error, LoginFailure};
use iscsi_pdu::LoginStatus;
use iscsi_pdu::keys::TextError;
use iscsi_session::{AuthenticationError, LoginError, LoginViolation, NegotiationFault};

use super::{Row, Table};

const CONNECT: &str = include_str!("../../../../crates/initiator/src/error/connect.rs");
const LOGIN: &str = include_str!("../../../../crates/session/src/login/error.rs");
const PORTAL: &str = "192.0.2.5:3260";

pub(super) fn tables() -> Vec<Table> {
    vec![
        Table::new("No connection", ("ConnectError", CONNECT), connections()),
        Table::new("The login is refused or fails", ("LoginError", LOGIN), logins()),
        Table::new("Credentials", ("AuthenticationError", LOGIN), credentials()),
    ]
}

fn connections() -> Vec<Row> {
    let (host, reason) = ("target.example".to_owned(), "no address".to_owned());
    let address = ([192, 0, 2, 5], 3260).into();
    let not_followed = |reason, advice| ConnectError::NotFollowed {
        by: [192, 0, 2, 5].into(),
        portal: "198.51.100.5:3260".to_owned(),
        reason,
        advice,
    };
    let errors = [
        ConnectError::HostUnknown { host: host.clone(), reason: reason.clone() },
        ConnectError::NameService { host, reason },
        ConnectError::Refused { address },
        ConnectError::TimedOut { portal: PORTAL.to_owned() },
        ConnectError::Failed { address, reason: "No route to host".to_owned() },
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
    let row = |error: ConnectError| {
        let error_of_all = Error::from(error.clone());
        Row::new(&error, error.advice().map(|advice| words(advice, &error_of_all)))
    };
    errors.into_iter().map(row).collect()
}

fn failure(cause: LoginError, user: Option<&str>) -> Error {
    let initiator = "iqn.2026-01.org.example:host".to_owned();
    let mut failure = LoginFailure::new(PORTAL.to_owned(), initiator, cause);
    failure.target = Some("iqn.2026-01.org.example:disk".to_owned());
    failure.user = user.map(str::to_owned);
    Error::Login(Box::new(failure))
}

fn row(cause: LoginError, user: Option<&str>) -> Row {
    let error = failure(cause.clone(), user);
    Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
}

fn logins() -> Vec<Row> {
    let status = |class, detail| LoginError::Status(LoginStatus { class, detail });
    let mut rows = vec![row(status(2, 1), Some("backup"))];
    for (class, detail) in
        [(2, 1), (2, 2), (2, 3), (2, 4), (2, 0), (2, 5), (2, 6), (2, 9), (3, 0), (3, 1), (3, 2)]
    {
        rows.push(row(status(class, detail), None));
    }
    let negotiation = LoginError::Negotiation {
        key: "HeaderDigest".to_owned(),
        why: NegotiationFault::NotUnderstood,
    };
    for cause in [
        AuthenticationError::WrongResponse.into(),
        negotiation,
        TextError::TooLong { len: 70000 }.into(),
        LoginViolation::Unsolicited.into(),
        LoginError::TooManyExchanges(32),
        LoginError::PortalGroup { expected: 1, found: 2 },
    ] {
        rows.push(row(cause, None));
    }
    rows
}

fn credentials() -> Vec<Row> {
    let causes = [
        AuthenticationError::MethodRefused,
        AuthenticationError::AlgorithmRefused,
        AuthenticationError::AlgorithmNotOffered,
        AuthenticationError::Missing("CHAP_R"),
        AuthenticationError::Unexpected("CHAP_R"),
        AuthenticationError::Malformed("CHAP_C"),
        AuthenticationError::ReflectedChallenge,
        AuthenticationError::ReflectedResponse,
        AuthenticationError::WrongResponse,
        AuthenticationError::WrongName,
        AuthenticationError::Incomplete,
        AuthenticationError::UserName,
        AuthenticationError::NoAlgorithm,
        AuthenticationError::ShortSecret,
        AuthenticationError::SameSecret,
    ];
    let row = |cause: AuthenticationError| {
        let error = failure(cause.into(), Some("backup"));
        Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
    };
    causes.into_iter().map(row).collect()
}
