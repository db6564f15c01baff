//! Tables of messages: errors of URLs.

use iscsi_examples_common::sentence::words;
use iscsi_initiator::{Error, IscsiName, TargetAddress, UrlError};

use super::{Row, Table};

const SOURCE: &str = include_str!("../../../../crates/initiator/src/url/error.rs");

pub(super) fn tables() -> Vec<Table> {
    let text = || "x".to_owned();
    let user = || "backup".to_owned();
    let portal = TargetAddress::parse("[::1").err().map(UrlError::Portal);
    let target = IscsiName::parse("disk").err().map(UrlError::Target);
    let errors = [
        UrlError::Scheme("http://...".to_owned()),
        UrlError::Iser,
        UrlError::NoHost,
        UrlError::PortalList("192.0.2.1,192.0.2.2".to_owned()),
        UrlError::SecondAt,
        UrlError::AtBehindQuestionMark,
        UrlError::NoTarget,
        UrlError::PortalOnly,
        UrlError::NoUnit,
        UrlError::Lun("one".to_owned()),
        UrlError::Trailing(text()),
        UrlError::NoUser,
        UrlError::MissingPassword(user()),
        UrlError::MissingTargetPassword(user()),
        UrlError::PasswordAlone,
        UrlError::Variable("LIBISCSI_CHAP_USERNAME"),
        UrlError::TargetCredentialsAlone,
        UrlError::UnknownOption("digest".to_owned()),
        UrlError::UnknownOptionBehindPassword,
        UrlError::RepeatedOption("sessions"),
        UrlError::TlsNotAsked,
        UrlError::TlsPort,
        UrlError::TlsPinAndName,
        UrlError::TlsHalfCertificate,
        UrlError::OptionValue { option: "sessions", expected: "a number from 1 to 64" },
        UrlError::Encoding("target name"),
    ];
    let row = |error: UrlError| {
        let all = Error::from(error.clone());
        Row::new(&error, error.advice().map(|advice| words(advice, &all)))
    };
    let rows = errors.into_iter().chain(portal).chain(target).map(row).collect();
    vec![Table::new("URLs", ("UrlError", SOURCE), rows)]
}
