//! `nbd://host:port/export` and `nbd+unix:///export?socket=PATH` (NBD, `doc/uri.md`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::NbdError;

/// The port where nothing else is said.
const PORT: u16 = 10809;

/// An export of an NBD server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NbdUri {
    text: String,
    place: Place,
    export: String,
}

/// Where a server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl NbdUri {
    /// Whether a text is meant to be one, by its scheme.
    pub fn is_meant_by(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme.starts_with("nbd"))
    }

    /// The name of the export; the empty one is that of the default export.
    pub fn export(&self) -> &str {
        &self.export
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }
}

impl FromStr for NbdUri {
    type Err = NbdError;

    fn from_str(text: &str) -> Result<Self, NbdError> {
        const SCHEME: &str = "write nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH";
        let (scheme, rest) = text.split_once("://").ok_or(NbdError::Uri(SCHEME))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
        let place = match (scheme, socket) {
            ("nbd+unix", Some(path)) if !path.is_empty() && authority.is_empty() => {
                Place::Unix(decode(path)?.into())
            }
            ("nbd+unix", _) => {
                return Err(NbdError::Uri("nbd+unix: needs ?socket=PATH, and no host"));
            }
            ("nbd", None) => tcp(authority)?,
            ("nbds" | "nbds+unix", _) => {
                return Err(NbdError::Uri("TLS is not supported; use a tunnel, or a Unix socket"));
            }
            _ => return Err(NbdError::Uri(SCHEME)),
        };
        Ok(Self { text: text.to_owned(), place, export: decode(export)? })
    }
}

fn tcp(authority: &str) -> Result<Place, NbdError> {
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((host, port)) if !port.contains(']') => {
            let port =
                port.parse().map_err(|_| NbdError::Uri("the port is no number up to 65535"))?;
            (host, port)
        }
        _ => (authority, PORT),
    };
    if authority.contains('@') {
        return Err(NbdError::Uri("NBD knows no users"));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(NbdError::Uri("the host is missing; write nbd://HOST:PORT/EXPORT"));
    }
    Ok(Place::Tcp(host.to_owned(), port))
}

fn decode(text: &str) -> Result<String, NbdError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| NbdError::Uri("the URI is not UTF-8"))
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => Path::display(path).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_a_place_and_an_export() {
        let tcp = |host: &str, port| Place::Tcp(host.to_owned(), port);
        for (text, place, export) in [
            ("nbd://host", tcp("host", 10809), ""),
            ("nbd://host/", tcp("host", 10809), ""),
            ("nbd://127.0.0.1:1234/disk%200/a", tcp("127.0.0.1", 1234), "disk 0/a"),
            ("nbd://[::1]:99/x", tcp("::1", 99), "x"),
            ("nbd://[::1]/", tcp("::1", 10809), ""),
            ("nbd+unix:///?socket=/run/a%3fb", Place::Unix("/run/a?b".into()), ""),
            ("nbd+unix:///vda?socket=s", Place::Unix("s".into()), "vda"),
        ] {
            let uri: NbdUri = text.parse().unwrap();
            assert_eq!((uri.place(), uri.export()), (&place, export), "{text}");
            assert_eq!(uri.to_string(), text);
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "nbd:host",
            "nbd://",
            "nbd:///x",
            "nbd://host:99999/",
            "nbd://host:x/",
            "nbd://user@host/",
            "nbd://host/%ff",
            "nbds://host/",
            "nbd+unix:///x",
            "nbd+unix://host/x?socket=s",
            "nbd+vsock://1/",
            "http://host/",
        ] {
            assert!(text.parse::<NbdUri>().is_err(), "{text}");
        }
        assert!(NbdUri::is_meant_by("nbds://host") && !NbdUri::is_meant_by("nbd.img"));
    }
}
