use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_session::{ChapAlgorithm, DigestOffer, Offer, Timeouts};
use proptest::prelude::*;

use super::*;
use crate::options::redirects::Redirects;

const TARGET: &str = "iqn.2026-01.org.example:disk";

fn parse(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn error(text: &str) -> UrlError {
    Url::parse(text).unwrap_err()
}

/// Returns the user of a URL, and the length of its password.
fn credentials(text: &str) -> (Option<String>, Option<usize>) {
    let url = parse(text);
    (url.user, url.password.map(|secret| secret.len()))
}

#[test]
fn a_full_url_has_all_parts() {
    let url = parse(&format!("iscsi://10.0.0.5:3261/{TARGET}/7"));
    assert_eq!((url.portal.host.as_str(), url.portal.port), ("10.0.0.5", 3261));
    assert_eq!(url.target.as_ref().map(IscsiName::as_str), Some(TARGET));
    assert_eq!(url.lun, Lun::new(7));
    assert_eq!(url.to_string(), format!("iscsi://10.0.0.5:3261/{TARGET}/7"));
}

#[test]
fn targets_and_portals_are_shorter_urls() {
    let url = parse(&format!("iscsi://host/{TARGET}"));
    assert!(url.target.is_some() && url.lun.is_none());
    assert!(parse(&format!("iscsi://host/{TARGET}/")).lun.is_none());
    for portal in ["iscsi://host", "iscsi://host/", "iscsi://host:3260", "iscsi://host,1"] {
        let url = parse(portal);
        assert!(url.target.is_none(), "{portal}");
        assert_eq!((url.portal.host.as_str(), url.portal.port), ("host", 3260), "{portal}");
    }
}

/// All spellings of a portal compare as equal.
#[test]
fn a_portal_is_one_in_all_its_spellings() {
    let portal = parse("iscsi://h").portal;
    for text in ["iscsi://h:3260,1", "iscsi://h,1", "iscsi://H:3260"] {
        assert_eq!(parse(text).portal, portal, "{text}");
    }
    assert_eq!(parse("iscsi://g?portal=h:3260,1").portals, [portal]);
    assert_eq!(parse("iscsi://[FD00:0::5]").portal, parse("iscsi://[fd00::5]").portal);
}

#[test]
fn ipv6_stands_in_brackets() {
    let url = parse(&format!("iscsi://[fec0::3]:3261,1/{TARGET}/0"));
    assert_eq!((url.portal.host.as_str(), url.portal.port), ("fec0::3", 3261));
    assert_eq!(parse("iscsi://[::1]").to_string(), "iscsi://[::1]:3260");
}

#[test]
fn credentials_are_separated_as_in_libiscsi_and_decoded() {
    let some = |user: &str, len| (Some(user.to_owned()), len);
    assert_eq!(credentials("iscsi://me%secret@host"), some("me", Some(6)));
    assert_eq!(credentials("iscsi://me:secret@host"), some("me", Some(6)));
    assert_eq!(credentials("iscsi://me@host"), some("me", None));
    assert_eq!(credentials("iscsi://me:@host"), some("me", None));
    // If there is a `:`, a `%` that begins an escape does not separate user and password.
    assert_eq!(credentials("iscsi://me%40home:a%3Fb%40c@host"), some("me@home", Some(5)));
    // libiscsi's form, with a password that looks like an escape.
    assert_eq!(credentials("iscsi://me%abcdef@host"), some("me", Some(6)));
    assert_eq!(credentials("iscsi://me:a/b:c@host"), some("me", Some(5)));
    assert_eq!(error("iscsi://:secret@host"), UrlError::NoUser);
}

/// The text without passwords is the same URL, but lacks the passwords.
#[test]
fn a_url_is_kept_without_passwords() {
    for (text, kept) in [
        ("iscsi://host", "iscsi://host"),
        ("iscsi://me@host/", "iscsi://me@host/"),
        ("iscsi://me:hunter22@host", "iscsi://me@host"),
        ("iscsi://me%hunter22@host", "iscsi://me@host"),
        ("iscsi://m%20e%hunter22@host", "iscsi://m%20e:@host"),
        ("iscsi://m%20e@host", "iscsi://m@host"),
        ("iscsi://me:hunter22:%33@host?auth=md5", "iscsi://me@host?auth=md5"),
        ("iscsi://host?target_password=hunter33", "iscsi://host"),
        (
            "iscsi://me:x@[::1]:1?&target_password=y&auth=md5&timeout=1",
            "iscsi://me@[::1]:1?auth=md5&timeout=1",
        ),
    ] {
        assert_eq!(Url::without_passwords(text), kept);
        let [whole, kept] = [text, kept].map(parse);
        assert!(kept.password.is_none() && kept.target_password.is_none());
        assert_eq!((kept.user, kept.portal), (whole.user, whole.portal));
        assert_eq!(kept.parameters, whole.parameters);
    }
}

#[test]
fn nothing_shows_a_password() {
    let url = parse(&format!("iscsi://me:hunter22@host/{TARGET}/0?target_password=hunter33"));
    let shown = format!("{url} {url:?}");
    assert!(!shown.contains("hunter22") && !shown.contains("hunter33"), "{shown}");
    for bad in [
        "http://me:hunter22@host",
        "me:hunter22@host",
        "iscsi://me:hunter22@",
        "iscsi://me:hunter22@host/x/0",
        "iscsi://me:a@hunter22@host/x/0",
        "iscsi://me:hunter22@host?target_password=hunter33&target_password=hunter33",
        // Passwords with a `?` or a `&` that is not written as an escape.
        "iscsi://me:hunt?er22@host/iqn.2026-01.org.example:disk/0",
        "iscsi://me%hunt?er22@host/iqn.2026-01.org.example:disk/0",
        "iscsi://host?target_password=hunt&er22",
        "iscsi://host?target_password=hunt&er22=x&auth=md5",
        "me:hunt://er22@host",
    ] {
        let shown = format!("{0} {0:?}", error(bad));
        assert!(!shown.contains("hunt") && !shown.contains("er22"), "{shown}");
    }
    for (bad, kept) in [
        ("iscsi://me:hunt?er22@host/x/0", "iscsi://..."),
        ("iscsi://me%hunt?er22@host?target_password=hunt", "iscsi://..."),
        ("iscsi://me:hunt@er22@host/x/0", "iscsi://..."),
        ("iscsis://me:hunt@er22@host:1/x/0", "iscsis://..."),
        ("me:hunter22@host", "..."),
        ("me:hunt://er22@host", "..."),
    ] {
        assert_eq!(Url::without_passwords(bad), kept);
    }
}

/// If a character may have split a password, the error names the character and the escape to write instead.
#[test]
fn characters_that_end_a_password_are_told_of() {
    assert_eq!(error("iscsi://me:hunt?er22@host"), UrlError::AtBehindQuestionMark);
    assert_eq!(error("iscsi://host?force_usn=a@b"), UrlError::AtBehindQuestionMark);
    assert_eq!(parse("iscsi://host?force_usn=a%40b").serial_number.as_deref(), Some("a@b"));
    let unknown = error("iscsi://host?target_password=hunt&er22");
    assert_eq!(unknown, UrlError::UnknownOptionBehindPassword);
}

#[test]
fn malformed_parts_are_named() {
    assert_eq!(error("10.0.0.5"), UrlError::Scheme("10.0.0.5".to_owned()));
    assert_eq!(error("iser://host"), UrlError::Iser);
    assert_eq!(error("iscsi://"), UrlError::NoHost);
    assert_eq!(error("iscsi:///iqn.2026-01.org.example:x/0"), UrlError::NoHost);
    assert_eq!(error("iscsi://host//0"), UrlError::NoTarget);
    assert!(matches!(error("iscsi://host:99999/"), UrlError::Portal(_)));
    assert_eq!(error("iscsis://one,two"), UrlError::PortalList("one,two".to_owned()));
    for hosts in ["one,two", "one:3260,two:3260", "one,1,two", "one,", "one,-1", "one,65536"] {
        assert_eq!(error(&format!("iscsi://{hosts}/")), UrlError::PortalList(hosts.to_owned()));
        let option = error(&format!("iscsi://host?portal={hosts}"));
        assert_eq!(option, UrlError::PortalList(hosts.to_owned()));
    }
    assert!(matches!(error("iscsi://one,two,1/"), UrlError::Portal(_)));
    assert_eq!(parse("iscsi://host:3261,1/").portal, parse("iscsi://host:3261/").portal);
    assert!(matches!(error("iscsi://host/disk/0"), UrlError::Target(_)));
    for lun in ["16384", "-1", "+1", "x", "0x1", "1 "] {
        assert_eq!(error(&format!("iscsi://host/{TARGET}/{lun}")), UrlError::Lun(lun.to_owned()));
    }
    let trailing = error(&format!("iscsi://host/{TARGET}/0/more"));
    assert_eq!(trailing, UrlError::Trailing("more".to_owned()));
    assert_eq!(error("iscsi://host/%ff"), UrlError::Encoding("target name"));
}

#[test]
fn luns_reach_to_16383() {
    for number in [0, 255, 256, 16383] {
        let url = parse(&format!("iscsi://host/{TARGET}/{number}"));
        assert_eq!(url.lun, Lun::new(number));
    }
}

#[test]
fn the_target_name_is_decoded() {
    let url = parse("iscsi://host/iqn.2026-01.org.example%3adisk/0");
    assert_eq!(url.target.as_ref().map(IscsiName::as_str), Some(TARGET));
}

/// NAM-02: the target name keeps its spelling; only comparisons ignore case.
#[test]
fn nam_02_the_spelling_of_the_target_name_is_kept() {
    let text = "iscsi://host:3260/iqn.2026-01.org.Example:DISK/0";
    let url = parse(text);
    assert_eq!(url.to_string(), text);
    assert_eq!(url.target, parse(&text.to_lowercase()).target);
}

#[test]
fn options_set_parameters() {
    let url = parse(
        "iscsi://u:p@host?auth=sha-256&header_digest=crc32c&data_digest=none-crc32c\
         &initial_r2t=yes&immediate_data=no&first_burst=65536&max_burst=1048576\
         &max_recv_data_segment=16777215&max_outstanding_r2t=8&timeout=0&login_timeout=3&retry_timeout=60&open_timeout=90&poll=30\
         &reservation_key=0x1A2b\
         &force_usn=ab%20c&target_user=t&target_password=q&chap_short_secrets=refuse&redirects=same-host",
    );
    let expected = Parameters {
        chap_algorithm: Some(ChapAlgorithm::Sha256),
        allow_short_secret: Some(false),
        redirects: Some(Redirects::SameHost),
        header_digest: Some(DigestOffer::Required),
        data_digest: Some(DigestOffer::NoneFirst),
        initial_r2t: Some(true),
        immediate_data: Some(false),
        max_recv_data_segment_length: Some(16_777_215),
        max_burst_length: Some(1_048_576),
        first_burst_length: Some(65_536),
        max_outstanding_r2t: Some(8),
        command_timeout: Some(0),
        login_timeout: Some(3),
        retry_timeout: Some(60),
        open_timeout: Some(90),
        poll: Some(30),
        reservation_key: Some(ReservationKey(0x1a2b)),
    };
    assert_eq!(url.parameters, expected);
    assert_eq!(url.serial_number.as_deref(), Some("ab c"));
    assert_eq!(url.target_user.as_deref(), Some("t"));
    let chap = url.chap().unwrap().unwrap();
    assert_eq!(chap.algorithms, [ChapAlgorithm::Sha256]);
    assert!(chap.target.is_some() && !chap.allow_short_secret);
}

#[test]
fn parameters_apply_over_the_defaults() {
    let url = parse("iscsi://host?max_burst=65536&timeout=0&login_timeout=3");
    let burst = 65_536;
    let offer = Offer::default().with_max_burst_length(burst).with_first_burst_length(burst);
    assert_eq!(url.parameters.apply_to_offer(Offer::default()), offer);
    let timeouts = Timeouts::default().with_command(None).with_login(Duration::from_secs(3));
    assert_eq!(url.parameters.apply_to_timeouts(Timeouts::default()), timeouts);
}

/// The earlier names of options are accepted as well.
#[test]
fn options_keep_their_earlier_names() {
    let now = parse("iscsi://host?retry_timeout=7&open_timeout=9");
    assert_eq!(parse("iscsi://host?patience=7&open_patience=9").parameters, now.parameters);
}

#[test]
fn wrong_options_are_errors_that_name_them() {
    let option = |text: &str| error(&format!("iscsi://host?{text}"));
    assert_eq!(option("data_digset=crc32c"), UrlError::UnknownOption("data_digset".to_owned()));
    assert_eq!(option("auth=md5&auth=md5"), UrlError::RepeatedOption("auth"));
    let twice = option("patience=1&retry_timeout=1");
    assert_eq!(twice, UrlError::RepeatedOption("retry_timeout"));
    for text in [
        "auth",
        "auth=md4",
        "header_digest=crc32",
        "initial_r2t=1",
        "first_burst=511",
        "max_burst=16777216",
        "max_outstanding_r2t=0",
        "timeout=-1",
        "timeout=",
        "login_timeout=0",
        "retry_timeout=long",
        "patience=long",
        "open_timeout=-1",
        "open_patience=-1",
        "poll=1m",
        "force_usn=",
        "chap_short_secrets=no",
        "redirects=",
        "redirects=all",
    ] {
        assert!(matches!(option(text), UrlError::OptionValue { .. }), "{text}");
    }
}

/// Returns a function that reads `set` instead of the environment of the process.
fn variables<'a>(set: &'a [(&'a str, &'a [u8])]) -> impl Fn(&str) -> Option<OsString> + 'a {
    |name| {
        let value = set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.to_vec());
        value.map(OsString::from_vec)
    }
}

#[test]
fn the_environment_fills_in_what_the_url_lacks() {
    let complete = |text: &str| {
        let set: [(&str, &[u8]); 2] =
            [("LIBISCSI_CHAP_USERNAME", b"env-user"), ("LIBISCSI_CHAP_PASSWORD", b"env-pass")];
        parse(text).with_environment(variables(&set)).unwrap()
    };
    let url = complete("iscsi://host");
    assert_eq!(url.user.as_deref(), Some("env-user"));
    assert!(url.chap().unwrap().is_some_and(|chap| chap.target.is_none()));

    let url = complete("iscsi://me@host");
    assert_eq!(url.user.as_deref(), Some("me"));
    assert_eq!(url.password.as_ref().map(Secret::len), Some(8));

    let url = complete("iscsi://me:own@host?target_user=t&target_password=q");
    assert_eq!(url.password.as_ref().map(Secret::len), Some(3));
    assert_eq!(url.target_user.as_deref(), Some("t"));

    let url = parse("iscsi://host").with_environment(|_| Some(OsString::new())).unwrap();
    assert!(url.chap().unwrap().is_none());
}

/// A secret consists of bytes. A secret that is not UTF-8 must not count as missing, because then the target
/// would not have to prove its identity.
#[test]
fn a_password_in_the_environment_need_not_be_text() {
    let set: [(&str, &[u8]); 3] = [
        ("LIBISCSI_CHAP_USERNAME", b"me"),
        ("LIBISCSI_CHAP_PASSWORD", b"\xff\xfe\x01"),
        ("LIBISCSI_CHAP_TARGET_PASSWORD", b"\x80\x81"),
    ];
    let url = parse("iscsi://host").with_environment(variables(&set)).unwrap();
    let lengths = [&url.password, &url.target_password].map(|p| p.as_ref().map(Secret::len));
    assert_eq!(lengths, [Some(3), Some(2)]);
    assert!(url.chap().unwrap().is_some_and(|chap| chap.target.is_some()));
}

/// CHAP_N is text. A name that is not UTF-8 must not count as missing, because then the login would not use
/// CHAP.
#[test]
fn a_user_in_the_environment_must_be_text() {
    let set: [(&str, &[u8]); 3] = [
        ("LIBISCSI_CHAP_USERNAME", b"m\xe4"),
        ("LIBISCSI_CHAP_TARGET_USERNAME", b"t\xe4"),
        ("LIBISCSI_CHAP_TARGET_PASSWORD", b"q"),
    ];
    let error = |text| parse(text).with_environment(variables(&set)).unwrap_err();
    assert_eq!(error("iscsi://host"), UrlError::Variable("LIBISCSI_CHAP_USERNAME"));
    assert_eq!(error("iscsi://me:p@host"), UrlError::Variable("LIBISCSI_CHAP_TARGET_USERNAME"));
    let whole = "iscsi://me:p@host?target_user=t";
    assert!(parse(whole).with_environment(variables(&set)).is_ok());
}

/// If the environment has only half of the credentials, the login must not happen without authentication, nor
/// without mutual authentication.
#[test]
fn half_of_the_credentials_in_the_environment_is_an_error() {
    const USER: &str = "LIBISCSI_CHAP_USERNAME";
    const PASSWORD: &str = "LIBISCSI_CHAP_PASSWORD";
    const TARGET_USER: &str = "LIBISCSI_CHAP_TARGET_USERNAME";
    const TARGET_PASSWORD: &str = "LIBISCSI_CHAP_TARGET_PASSWORD";
    // Returns whether CHAP is used, and whether it is mutual.
    let chap = |text: &str, names: &[&str]| {
        let set: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b"x"[..])).collect();
        let url = parse(text).with_environment(variables(&set)).unwrap();
        url.chap().map(|chap| chap.map(|chap| chap.target.is_some()))
    };
    let (bare, whole) = ("iscsi://host", "iscsi://me:p@host");
    let alone = || Err(UrlError::TargetCredentialsAlone);
    let no_password = |user: &str| Err(UrlError::MissingPassword(user.to_owned()));
    let no_target_password = || Err(UrlError::MissingTargetPassword("x".to_owned()));
    for (text, names, expected) in [
        (bare, &[][..], Ok(None)),
        (bare, &[USER], no_password("x")),
        (bare, &[PASSWORD], Err(UrlError::PasswordAlone)),
        (bare, &[PASSWORD, TARGET_USER, TARGET_PASSWORD], Err(UrlError::PasswordAlone)),
        (bare, &[TARGET_USER], alone()),
        (bare, &[TARGET_PASSWORD], alone()),
        (bare, &[USER, PASSWORD], Ok(Some(false))),
        (bare, &[USER, PASSWORD, TARGET_USER], no_target_password()),
        (bare, &[USER, PASSWORD, TARGET_PASSWORD], Ok(Some(true))),
        ("iscsi://me@host", &[], no_password("me")),
        ("iscsi://me@host", &[PASSWORD], Ok(Some(false))),
        ("iscsi://host?target_user=t&target_password=q", &[], alone()),
        ("iscsi://host?target_user=t", &[], alone()),
        (whole, &[TARGET_USER], no_target_password()),
        (whole, &[TARGET_PASSWORD], Ok(Some(true))),
        (whole, &[PASSWORD], Ok(Some(false))),
    ] {
        assert_eq!(chap(text, names), expected, "{text} {names:?}");
    }
}

#[test]
fn tls_is_asked_for_by_the_scheme_or_an_option() {
    let pin = "ab".repeat(32);
    for (text, expected) in [
        ("iscsi://host", None),
        ("iscsis://host:3261", Some(TlsOptions::default())),
        ("iscsi://host:3261?tls=yes", Some(TlsOptions::default())),
        ("iscsis://[2001:db8::1]:3261?tls=yes", Some(TlsOptions::default())),
        (
            "iscsis://host:1?tls_ca=/a%20b/ca.pem&tls_name=san.example&tls_cert=c&tls_key=k",
            Some(TlsOptions {
                ca: Some("/a b/ca.pem".into()),
                name: Some("san.example".to_owned()),
                certificate: Some("c".into()),
                key: Some("k".into()),
                pins: Vec::new(),
            }),
        ),
        (
            &format!("iscsis://host:1?tls_pin=sha256:{pin}&tls_pin=sha256:{}", pin.to_uppercase()),
            Some(TlsOptions { pins: vec![[0xab; 32]; 2], ..TlsOptions::default() }),
        ),
    ] {
        assert_eq!(parse(text).tls, expected, "{text}");
    }
    let kept = "iscsis://...";
    assert_eq!(Url::without_passwords("iscsis://a:b?c@host:1"), kept);
    let shown = parse("iscsi://host:3261?tls=yes").to_string();
    assert_eq!(shown, "iscsis://host:3261");
    assert!(parse(&shown).tls.is_some());
}

#[test]
fn a_portal_that_becomes_an_address_keeps_the_name_of_its_certificate() {
    let pin = format!("tls_pin=sha256:{}", "ab".repeat(32));
    for (options, name) in
        [("", Some("san.example")), ("tls_name=other.example", Some("other.example")), (&pin, None)]
    {
        let mut url = parse(&format!("iscsis://san.example:3261?{options}"));
        url.keep_certificate_name();
        assert_eq!(url.tls.unwrap().name.as_deref(), name, "{options}");
    }
    let mut url = parse("iscsi://san.example");
    url.keep_certificate_name();
    assert_eq!(url.tls, None);
}

/// No mistake in the options of TLS leads to clear text, or to a check that is left out.
#[test]
fn half_of_the_options_of_tls_is_an_error() {
    let value = |option| {
        let expected = match option {
            "tls" => "yes",
            "tls_pin" => "sha256: and 64 hexadecimal digits",
            _ => "the name of a file",
        };
        UrlError::OptionValue { option, expected }
    };
    for (text, expected) in [
        ("iscsi://host:1?tls_ca=ca.pem", UrlError::TlsNotAsked),
        ("iscsi://host:1?tls_name=san", UrlError::TlsNotAsked),
        ("iscsi://host:1?tls=no", value("tls")),
        ("iscsis://host:1?tls=no", value("tls")),
        ("iscsis://host", UrlError::TlsPort),
        ("iscsis://[::1]", UrlError::TlsPort),
        ("iscsis://2001:db8::1", UrlError::TlsPort),
        ("iscsis://host:1?portal=2001:db8::1", UrlError::TlsPort),
        ("iscsi://host/iqn.2026-01.org.example:disk/0?tls=yes", UrlError::TlsPort),
        ("iscsis://host:1?portal=other", UrlError::TlsPort),
        ("iscsis://host:1?tls_cert=c", UrlError::TlsHalfCertificate),
        ("iscsis://host:1?tls_key=k", UrlError::TlsHalfCertificate),
        ("iscsis://host:1?tls_pin=sha256:ab", value("tls_pin")),
        ("iscsis://host:1?tls_ca=", value("tls_ca")),
        ("iscsis://host:1?tls_ca=a&tls_ca=b", UrlError::RepeatedOption("tls_ca")),
        ("iscsis://host:1?tls_verify=no", UrlError::UnknownOption("tls_verify".to_owned())),
    ] {
        assert_eq!(Url::parse(text).unwrap_err(), expected, "{text}");
    }
    let pin = format!("tls_pin=sha256:{}", "ab".repeat(32));
    let both = format!("iscsis://host:1?{pin}&tls_name=san");
    assert_eq!(Url::parse(&both).unwrap_err(), UrlError::TlsPinAndName);
}

/// A process's arguments are visible to all users, so no error advises a password in the URL.
#[test]
fn no_error_advises_a_password_in_the_url() {
    for error in [
        UrlError::NoUser,
        UrlError::MissingPassword("me".to_owned()),
        UrlError::MissingTargetPassword("you".to_owned()),
        UrlError::PasswordAlone,
        UrlError::TargetCredentialsAlone,
    ] {
        let text = format!("{error}; {}", error.advice().unwrap());
        assert!(!text.contains("password@") && !text.contains("to the URL"), "{text}");
    }
    let error = crate::error::samples::refused_login(2, 1);
    let text = format!("{error}; {}", error.advice().unwrap());
    assert!(!text.contains("password@") && text.contains("Url::password"), "{text}");
}

#[test]
fn half_of_the_credentials_is_an_error() {
    let chap = |text: &str| parse(text).chap().map(|chap| chap.is_some());
    assert_eq!(chap("iscsi://host"), Ok(false));
    assert_eq!(chap("iscsi://me:secret@host"), Ok(true));
    assert_eq!(chap("iscsi://me@host"), Err(UrlError::MissingPassword("me".to_owned())));
    assert_eq!(
        chap("iscsi://me:secret@host?target_user=t"),
        Err(UrlError::MissingTargetPassword("t".to_owned()))
    );
    assert_eq!(chap("iscsi://host?target_password=q"), Err(UrlError::TargetCredentialsAlone));
    let password = Some(Secret::from("secret"));
    let without_user = Url { password, ..parse("iscsi://host") };
    assert_eq!(without_user.chap().unwrap_err(), UrlError::PasswordAlone);
}

proptest! {
    #[test]
    fn parsing_never_panics(text in ".*", tail in "[a-z0-9:%@/?&=,\\[\\].]*") {
        let _ = Url::parse(&text);
        let _ = Url::parse(&format!("iscsi://{tail}"));
        if let Ok(url) = Url::parse(&format!("iscsi://{text}")) {
            let _ = url.chap();
        }
    }

    #[test]
    fn what_is_shown_parses_to_the_same(host in "[a-z][a-z0-9.-]{0,20}", port in 1u16.., lun in 0u16..16384) {
        let text = format!("iscsi://{host}:{port}/{TARGET}/{lun}");
        prop_assert_eq!(parse(&text).to_string(), text);
    }
}
