//! The options behind the `?` of a URL.

use std::str::FromStr;

use iscsi_pdu::keys::Key;
use iscsi_session::{DigestOffer, Secret};

use super::{Url, UrlError, decode, parse_portal};

/// Reads `option=value` pairs, `&` between them, into the URL.
pub(super) fn parse_all(url: &mut Url, text: &str) -> Result<(), UrlError> {
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
        parse_one(url, option, &decode(value, "value of an option")?)?;
    }
    Ok(())
}

fn parse_one(url: &mut Url, option: &str, value: &str) -> Result<(), UrlError> {
    let parameters = &mut url.parameters;
    match option {
        "auth" => {
            let expected = "md5, sha1, sha-256 or sha3-256";
            put(&mut parameters.chap_algorithm, "auth", value.parse().ok(), expected)
        }
        "target_user" => put(&mut url.target_user, "target_user", text(value), "a name"),
        "target_password" => {
            let secret = text(value).map(|value| Secret::from(value.into_bytes()));
            put(&mut url.target_password, "target_password", secret, "a password")
        }
        "force_usn" => put(&mut url.serial_number, "force_usn", text(value), "a serial number"),
        "header_digest" => digest(&mut parameters.header_digest, "header_digest", value),
        "data_digest" => digest(&mut parameters.data_digest, "data_digest", value),
        "initial_r2t" => flag(&mut parameters.initial_r2t, "initial_r2t", value),
        "immediate_data" => flag(&mut parameters.immediate_data, "immediate_data", value),
        "first_burst" => {
            let place = &mut parameters.first_burst_length;
            length(place, "first_burst", Key::FirstBurstLength, value)
        }
        "max_burst" => {
            let place = &mut parameters.max_burst_length;
            length(place, "max_burst", Key::MaxBurstLength, value)
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
        "timeout" => {
            let count = number(value, (0, u32::MAX));
            put(&mut parameters.command_timeout, "timeout", count, "seconds, or 0 for no limit")
        }
        "login_timeout" => {
            let count = number(value, (1, u32::MAX));
            put(&mut parameters.login_timeout, "login_timeout", count, "seconds, at least 1")
        }
        "patience" => {
            put(&mut parameters.patience, "patience", number(value, (0, u32::MAX)), "seconds")
        }
        "portal" => {
            url.portals.push(parse_portal(value)?);
            Ok(())
        }
        "iser" => Err(UrlError::Iser),
        unknown => Err(UrlError::UnknownOption(unknown.to_owned())),
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

/// A length in the range of its key.
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
