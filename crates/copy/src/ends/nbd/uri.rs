//! Parses `nbd://host:port/export`, `nbds://host:port/export` and `nbd+unix:///export?socket=PATH` (NBD, `doc/uri.md`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::NbdError;
use super::tls::{NbdTls, Provider};

/// Default port.
const PORT: u16 = 10809;
/// Default time limits: of an outage, and of a reply. They are the same as for iSCSI targets.
const DEFAULT_RETRY_TIMEOUT: Duration = Duration::from_secs(300);
const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Names of the query parameters that affect only how the export is used.
const RETRY_TIMEOUT: [&str; 2] = ["retry_timeout=", "patience="];
const OPEN_TIMEOUT: [&str; 2] = ["open_timeout=", "open_patience="];
const COMMAND_TIMEOUT: [&str; 1] = ["command_timeout="];

/// An export of an NBD server.
///
/// Besides `socket`, three parameters of the query have an effect, all in seconds: `retry_timeout` and
/// `open_timeout`, as in an iSCSI URL (also called `patience` and `open_patience`), and `command_timeout`.
///
/// `nbds://` requires TLS: see [`tls`](Self::tls) and [`with_tls`](Self::with_tls). Parameters that begin with `tls` are its options, and
/// an error in the URI of a connection in clear text. Other parameters are ignored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NbdUri {
    text: String,
    /// Names and values of the options of TLS; `None` for clear text.
    tls: Option<Vec<(String, String)>>,
    provider: Provider,
    place: Place,
    export: String,
    retry_timeout: Duration,
    command_timeout: Option<Duration>,
    open_timeout: Option<Duration>,
}

/// The address of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl NbdUri {
    /// Returns whether a text has the scheme of an NBD URI.
    pub fn is_meant_by(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme.starts_with("nbd"))
    }

    /// Returns the name of the export; the empty name means the default export.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// Returns how long requests wait for a server that is unreachable (`retry_timeout`, 300 s). Zero means
    /// that they do not wait.
    pub const fn retry_timeout(&self) -> Duration {
        self.retry_timeout
    }

    /// Returns how long opening the export waits for a server that has not started yet (`open_timeout`). Zero,
    /// the default, means a single attempt.
    pub fn open_timeout(&self) -> Duration {
        self.open_timeout.unwrap_or_default()
    }

    /// Sets how long opening waits, unless the URI sets it.
    #[must_use]
    pub fn or_open_timeout(mut self, open_timeout: Duration) -> Self {
        self.open_timeout.get_or_insert(open_timeout);
        self
    }

    /// Returns how long a server may send nothing while requests are in flight, before its connection counts
    /// as lost (`command_timeout`, 60 s). Each MiB that the requests move adds a second. `None` (0) means no
    /// limit.
    pub const fn command_timeout(&self) -> Option<Duration> {
        self.command_timeout
    }

    /// Returns the URI without the three parameters for timeouts. The result identifies the export: URIs that
    /// differ only in timeouts have the same name.
    pub fn name(&self) -> String {
        let Some((before, query)) = self.text.split_once('?') else { return self.text.clone() };
        let own = || RETRY_TIMEOUT.iter().chain(&OPEN_TIMEOUT).chain(&COMMAND_TIMEOUT);
        let names = |pair: &&str| !own().any(|own| pair.starts_with(own));
        let kept: Vec<_> = query.split('&').filter(names).collect();
        if kept.is_empty() { before.to_owned() } else { format!("{before}?{}", kept.join("&")) }
    }

    /// Returns the options of TLS, names and values, if the URI asks for TLS: `tls_ca`, `tls_name`, `tls_pin`, `tls_cert` and `tls_key`
    /// are those of an iSCSI URL, `tls-certificates` and others those of libnbd.
    pub fn tls(&self) -> Option<impl Iterator<Item = (&str, &str)>> {
        let options = self.tls.as_ref()?;
        Some(options.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Sets what encrypts the connections, by the options in [`tls`](Self::tls). Without it, an export whose URI asks for TLS is not
    /// opened ([`NbdError::Tls`]).
    #[must_use]
    pub fn with_tls(self, tls: Arc<dyn NbdTls>) -> Self {
        Self { provider: Provider(Some(tls)), ..self }
    }

    /// Returns what encrypts the connections; `None` for clear text.
    pub(super) fn provider(&self) -> Result<Option<&dyn NbdTls>, NbdError> {
        match &self.tls {
            None => Ok(None),
            Some(_) => self.provider.0.as_deref().map(Some).ok_or(NbdError::Tls),
        }
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }
}

impl FromStr for NbdUri {
    type Err = NbdError;

    fn from_str(text: &str) -> Result<Self, NbdError> {
        const SCHEME: &str = "it is no URI of NBD";
        let (scheme, rest) = text.split_once("://").ok_or(NbdError::Uri(SCHEME))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let parameter =
            |name: &'static str| query.split('&').find_map(|pair| pair.strip_prefix(name));
        let socket = parameter("socket=");
        let time = |names: &[&'static str]| {
            names.iter().find_map(|name| parameter(name)).map(seconds).transpose()
        };
        let retry_timeout = time(&RETRY_TIMEOUT)?.unwrap_or(DEFAULT_RETRY_TIMEOUT);
        let command_timeout = time(&COMMAND_TIMEOUT)?.unwrap_or(DEFAULT_COMMAND_TIMEOUT);
        let open_timeout = time(&OPEN_TIMEOUT)?;
        let place = match (scheme, socket) {
            ("nbd+unix", Some(path)) if !path.is_empty() && authority.is_empty() => {
                Place::Unix(decode(path)?.into())
            }
            ("nbd+unix", _) => {
                return Err(NbdError::Uri("nbd+unix: needs a socket, and no host"));
            }
            ("nbd" | "nbds", None) => tcp(authority)?,
            ("nbds+unix", _) => {
                return Err(NbdError::Uri("TLS over a Unix socket is not supported"));
            }
            _ => return Err(NbdError::Uri(SCHEME)),
        };
        let mut tls = Vec::new();
        for pair in query.split('&').filter(|pair| pair.starts_with("tls")) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            tls.push((name.to_owned(), decode(value)?));
        }
        let is_secure = scheme == "nbds";
        if !is_secure && !tls.is_empty() {
            return Err(NbdError::Uri(
                "the URI has options of TLS, but does not begin with nbds://",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            tls: is_secure.then_some(tls),
            provider: Provider::default(),
            place,
            export: decode(export)?,
            retry_timeout,
            command_timeout: Some(command_timeout).filter(|limit| !limit.is_zero()),
            open_timeout,
        })
    }
}

fn seconds(text: &str) -> Result<Duration, NbdError> {
    let count: u32 = text.parse().map_err(|_| {
        NbdError::Uri(
            "retry_timeout, open_timeout and command_timeout are whole numbers of seconds",
        )
    })?;
    Ok(Duration::from_secs(count.into()))
}

fn tcp(authority: &str) -> Result<Place, NbdError> {
    let (host, port) = match authority.rsplit_once(':') {
        // A colon within brackets is part of an IPv6 address.
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
        return Err(NbdError::Uri("the host is missing"));
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
    fn a_query_says_how_long_to_wait() {
        for (text, retry_timeout, limit, name) in [
            ("nbd://host/a", 300, Some(60), "nbd://host/a"),
            ("nbd://host/a?retry_timeout=5", 5, Some(60), "nbd://host/a"),
            // Alternative names of the timeout parameters.
            ("nbd://host/a?patience=5&open_patience=6", 5, Some(60), "nbd://host/a"),
            ("nbd://host?retry_timeout=0&command_timeout=0", 0, None, "nbd://host"),
            (
                "nbd+unix:///?retry_timeout=7&socket=s&command_timeout=8&open_timeout=1&other=c",
                7,
                Some(8),
                "nbd+unix:///?socket=s&other=c",
            ),
        ] {
            let uri: NbdUri = text.parse().unwrap();
            assert_eq!(uri.retry_timeout(), Duration::from_secs(retry_timeout), "{text}");
            assert_eq!(uri.command_timeout(), limit.map(Duration::from_secs), "{text}");
            assert_eq!((uri.name(), uri.to_string()), (name.to_owned(), text.to_owned()));
        }
    }

    #[test]
    fn a_uri_that_asks_for_tls_has_its_options() {
        let uri: NbdUri = "nbds://[::1]:99/x?tls_ca=a%26b.pem&retry_timeout=5&tls_pin=sha256:00&tls-certificates=c".parse().unwrap();
        assert_eq!(uri.place(), &Place::Tcp("::1".to_owned(), 99));
        let options = uri.tls().unwrap().collect::<Vec<_>>();
        assert_eq!(
            options,
            [("tls_ca", "a&b.pem"), ("tls_pin", "sha256:00"), ("tls-certificates", "c")]
        );
        assert!(matches!(uri.provider(), Err(NbdError::Tls)));
        let clear: NbdUri = "nbd://host".parse().unwrap();
        assert!(clear.tls().is_none() && matches!(clear.provider(), Ok(None)));
    }

    #[test]
    fn the_uri_says_itself_how_long_to_wait_at_the_beginning() {
        let of = |text: &str| text.parse::<NbdUri>().unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(of("nbd://host").open_timeout(), Duration::ZERO);
        assert_eq!(of("nbd://host").or_open_timeout(second).open_timeout(), second);
        for (text, wait) in [("open_timeout=0", 0), ("open_timeout=9", 9), ("open_patience=9", 9)] {
            let uri = of(&format!("nbd://host?{text}")).or_open_timeout(second);
            assert_eq!(uri.open_timeout(), Duration::from_secs(wait));
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "nbd://host?retry_timeout=",
            "nbd://host?patience=soon",
            "nbd://host?command_timeout=-1",
            "nbd://host?open_timeout=1m",
            "nbd://host?command_timeout=1.5",
            "nbd:host",
            "nbd://",
            "nbd:///x",
            "nbd://host:99999/",
            "nbd://host:x/",
            "nbd://user@host/",
            "nbd://host/%ff",
            "nbds+unix:///x?socket=s",
            "nbds://host?tls_pin=%ff",
            "nbd://host?tls_ca=ca.pem",
            "nbd://host?tls-certificates=pki",
            "nbd+unix:///x?socket=s&tls_name=san.example",
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
