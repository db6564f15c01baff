//! Parses the options after the `?` of a URL. A new option also needs a field in `parameters.rs` and a row in
//! the table of `url.rs`.

use std::path::PathBuf;
use std::str::FromStr;

use iscsi_pdu::TargetAddress;
use iscsi_pdu::keys::Key;
use iscsi_pdu::scsi::reservation::ReservationKey;
use iscsi_session::{DigestOffer, Secret};

use super::error::UrlError;
use super::parameters::Parameters;
use super::text::{decode, names_port, parse_portal};
use super::tls::{TlsOptions, pin};
use crate::options::redirects::Redirects;

/// Values of the options of a URL.
#[derive(Default)]
pub(super) struct UrlOptions {
    pub(super) target_user: Option<String>,
    pub(super) target_password: Option<Secret>,
    pub(super) serial_number: Option<String>,
    pub(super) portals: Vec<TargetAddress>,
    pub(super) all_portals: Option<bool>,
    /// Whether the URL asks for TLS by an option.
    pub(super) is_tls: Option<bool>,
    pub(super) tls: TlsOptions,
    /// Whether a further portal names no port.
    pub(super) lacks_port: bool,
    pub(super) parameters: Parameters,
}

impl TlsOptions {
    /// Reads the options from names and values, as in a URL: `tls_ca`, `tls_name`, `tls_pin`, `tls_cert`, `tls_key`. For other protocols
    /// than iSCSI whose URLs have the same options.
    ///
    /// # Errors
    /// An option is unknown, has a value that is not allowed, or does not fit the others.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, UrlError> {
        let mut options = UrlOptions::default();
        for (name, value) in pairs {
            options.set_of_tls(name, value)?;
        }
        Ok(options.tls.check(true)?.unwrap_or_default())
    }
}

impl UrlOptions {
    /// Parses `option=value` pairs that are separated by `&`.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        let mut options = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(option, &decode(value, "value of an option")?)?;
        }
        Ok(options)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), UrlError> {
        let parameters = &mut self.parameters;
        match option {
            "auth" | "target_user" | "target_password" | "chap_short_secrets" => {
                self.set_of_chap(option, value)
            }
            "redirects" => {
                let followed = Redirects::parse(value);
                put(&mut parameters.redirects, "redirects", followed, "never, same-host or any")
            }
            "force_usn" => {
                put(&mut self.serial_number, "force_usn", text(value), "a serial number")
            }
            "header_digest" => digest(&mut parameters.header_digest, "header_digest", value),
            "data_digest" => digest(&mut parameters.data_digest, "data_digest", value),
            "initial_r2t" => flag(&mut parameters.initial_r2t, "initial_r2t", value),
            "immediate_data" => flag(&mut parameters.immediate_data, "immediate_data", value),
            "first_burst" => length(
                &mut parameters.first_burst_length,
                "first_burst",
                Key::FirstBurstLength,
                value,
            ),
            "max_burst" => {
                length(&mut parameters.max_burst_length, "max_burst", Key::MaxBurstLength, value)
            }
            "max_recv_data_segment" => {
                let place = &mut parameters.max_recv_data_segment_length;
                length(place, "max_recv_data_segment", Key::MaxRecvDataSegmentLength, value)
            }
            "max_outstanding_r2t" => {
                let count = number(value, (1, u16::MAX));
                let expected = "a number from 1 to 65535";
                put(&mut parameters.max_outstanding_r2t, "max_outstanding_r2t", count, expected)
            }
            "timeout" => seconds(&mut parameters.command_timeout, "timeout", value),
            "login_timeout" => {
                let count = number(value, (1, u32::MAX));
                put(&mut parameters.login_timeout, "login_timeout", count, "seconds, at least 1")
            }
            // `patience` and `open_patience` are earlier names, which scripts may use.
            "retry_timeout" => seconds(&mut parameters.retry_timeout, "retry_timeout", value),
            "patience" => seconds(&mut parameters.retry_timeout, "patience", value),
            "open_timeout" => seconds(&mut parameters.open_timeout, "open_timeout", value),
            "open_patience" => seconds(&mut parameters.open_timeout, "open_patience", value),
            "poll" => seconds(&mut parameters.poll, "poll", value),
            "reservation_key" => {
                let key = value.parse().ok().filter(|key: &ReservationKey| !key.is_none());
                let expected = "a key other than 0, as 1 to 16 hexadecimal digits behind 0x";
                put(&mut parameters.reservation_key, "reservation_key", key, expected)
            }
            "portal" => {
                self.portals.push(parse_portal(value)?);
                self.lacks_port |= !names_port(value);
                Ok(())
            }
            "portals" => put(&mut self.all_portals, "portals", all_portals(value), "auto"),
            option if option.starts_with("tls") => self.set_of_tls(option, value),
            "iser" => Err(UrlError::Iser),
            unknown => Err(self.unknown(unknown)),
        }
    }

    /// Sets one of the CHAP options.
    fn set_of_chap(&mut self, option: &str, value: &str) -> Result<(), UrlError> {
        let parameters = &mut self.parameters;
        match option {
            "auth" => {
                let expected = "md5, sha1, sha-256 or sha3-256";
                put(&mut parameters.chap_algorithm, "auth", value.parse().ok(), expected)
            }
            "target_user" => put(&mut self.target_user, "target_user", text(value), "a name"),
            "target_password" => {
                let secret = text(value).map(|value| Secret::from(value.into_bytes()));
                put(&mut self.target_password, "target_password", secret, "a password")
            }
            "chap_short_secrets" => {
                let allowed = match value {
                    "warn" => Some(true),
                    "refuse" => Some(false),
                    _ => None,
                };
                let place = &mut parameters.allow_short_secret;
                put(place, "chap_short_secrets", allowed, "warn or refuse")
            }
            unknown => Err(self.unknown(unknown)),
        }
    }

    /// Sets one of the options of TLS.
    fn set_of_tls(&mut self, option: &str, value: &str) -> Result<(), UrlError> {
        let tls = &mut self.tls;
        let file = || text(value).map(PathBuf::from);
        match option {
            "tls" => put(&mut self.is_tls, "tls", (value == "yes").then_some(true), "yes"),
            "tls_ca" => put(&mut tls.ca, "tls_ca", file(), "the name of a file"),
            "tls_name" => put(&mut tls.name, "tls_name", text(value), "a host name or an address"),
            "tls_pin" => {
                let pin = pin(value).ok_or(UrlError::OptionValue {
                    option: "tls_pin",
                    expected: "sha256: and 64 hexadecimal digits",
                })?;
                tls.pins.push(pin);
                Ok(())
            }
            "tls_cert" => put(&mut tls.certificate, "tls_cert", file(), "the name of a file"),
            "tls_key" => put(&mut tls.key, "tls_key", file(), "the name of a file"),
            unknown => Err(self.unknown(unknown)),
        }
    }

    fn unknown(&self, option: &str) -> UrlError {
        if self.target_password.is_some() {
            // The unknown option may be the end of a password that contains a `&`.
            UrlError::UnknownOptionBehindPassword
        } else {
            UrlError::UnknownOption(option.to_owned())
        }
    }
}

fn put<T>(
    place: &mut Option<T>,
    option: &'static str,
    value: Option<T>,
    expected: &'static str,
) -> Result<(), UrlError> {
    if place.is_some() {
        return Err(UrlError::RepeatedOption(option));
    }
    let value = value.ok_or(UrlError::OptionValue { option, expected })?;
    *place = Some(value);
    Ok(())
}

fn all_portals(value: &str) -> Option<bool> {
    (value == "auto").then_some(true)
}

fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

fn digest(
    place: &mut Option<DigestOffer>,
    option: &'static str,
    value: &str,
) -> Result<(), UrlError> {
    let offer = match value {
        "none" => Some(DigestOffer::Never),
        "none-crc32c" => Some(DigestOffer::NoneFirst),
        "crc32c-none" => Some(DigestOffer::Crc32cFirst),
        "crc32c" => Some(DigestOffer::Required),
        _ => None,
    };
    put(place, option, offer, "none, none-crc32c, crc32c-none or crc32c")
}

fn flag(place: &mut Option<bool>, option: &'static str, value: &str) -> Result<(), UrlError> {
    let flag = match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    put(place, option, flag, "yes or no")
}

/// Parses a time in whole seconds.
fn seconds(place: &mut Option<u32>, option: &'static str, value: &str) -> Result<(), UrlError> {
    put(place, option, number(value, (0, u32::MAX)), "a number of seconds")
}

/// Parses a length, which must be in the range of its key.
fn length(
    place: &mut Option<u32>,
    option: &'static str,
    key: Key,
    value: &str,
) -> Result<(), UrlError> {
    let length = key.definition().kind.range().and_then(|range| number(value, range));
    put(place, option, length, "a number of bytes from 512 to 16777215")
}

fn number<T: FromStr + PartialOrd>(value: &str, (least, most): (T, T)) -> Option<T> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|number| digits && *number >= least && *number <= most)
}
