//! Tables of messages: errors on the way to a target, and errors of the login there.

use iscsi_examples_common::sentence::words;
use iscsi_initiator::{Error, samples};
use iscsi_pdu::LoginStatus;
use iscsi_pdu::keys::TextError;
use iscsi_session::{AuthenticationError, LoginError, LoginViolation, NegotiationFault};

use super::{Row, Table};

const LINK: &str = include_str!("../../../../crates/initiator/src/error/link.rs");
const LOGIN: &str = include_str!("../../../../crates/session/src/login/error.rs");

pub(super) fn tables() -> Vec<Table> {
    vec![
        Table::new("No connection", ("LinkCause", LINK), connections()),
        Table::new("The login is refused or fails", ("LoginError", LOGIN), logins()),
        Table::new("Credentials", ("AuthenticationError", LOGIN), credentials()),
    ]
}

fn connections() -> Vec<Row> {
    let errors = samples::of_the_link();
    let row = |error: &Error| Row::new(error, error.advice().map(|advice| words(advice, error)));
    errors.iter().map(row).collect()
}

fn row(cause: LoginError, user: Option<&str>) -> Row {
    let error = samples::login(cause.clone(), user);
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
        let error = samples::login(cause.into(), Some("backup"));
        Row::of(&cause, &error, error.advice().map(|advice| words(advice, &error)))
    };
    causes.into_iter().map(row).collect()
}
