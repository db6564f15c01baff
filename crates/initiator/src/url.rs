//! Parses `iscsi://` URLs: libiscsi's grammar, with percent-decoding everywhere and more options.
//!
//! ```text
//! iscsi://[USER[%PASSWORD | :PASSWORD]@]HOST[:PORT][/TARGET[/LUN]][?OPTION=VALUE[&OPTION=VALUE]...]
//! ```
//!
//! `iscsis://` in place of `iscsi://` is the same as the option `tls=yes`.
//!
//! | part | meaning |
//! |---|---|
//! | `USER`, `PASSWORD` | CHAP credentials; see below for what separates them |
//! | `HOST` | a name, an IPv4 address, or an IPv6 address in brackets; a `,TAG` after the port, 0 to 65535, is ignored |
//! | `PORT` | 3260 unless given; with TLS it must be given, since no port is registered for it |
//! | `TARGET` | the target's iSCSI name; without it the URL is a portal, for discovery |
//! | `LUN` | 0 to 16383; without it the URL is a target |
//!
//! The credentials end at the first `@`. In them, the user ends at the first `:` or at the first `%` that
//! does not begin an escape of two hexadecimal digits, whichever comes first. If there is neither, the user
//! ends at the first `%`, as in libiscsi. Write a `%` in a password as `%25`, and a `?` anywhere as `%3F`; in
//! the value of an option, write `@` as `%40` and `&` as `%26`.
//!
//! | option | values |
//! |---|---|
//! | `auth` | the only CHAP algorithm to offer: `md5`, `sha1`, `sha-256`, `sha3-256` |
//! | `target_user`, `target_password` | CHAP credentials of the target (mutual CHAP) |
//! | `chap_short_secrets` | `warn`, `refuse`: what to do about a CHAP secret below 96 bits (RFC 7143 §9.2.1) |
//! | `redirects` | `never`, `same-host`, `any`: which redirections are followed; see [`Redirects`](crate::Redirects) |
//! | `header_digest`, `data_digest` | `none`, `crc32c`, or a list in order of preference: `none-crc32c`, `crc32c-none` |
//! | `initial_r2t`, `immediate_data` | `yes`, `no` |
//! | `first_burst`, `max_burst`, `max_recv_data_segment` | bytes, 512 to 16777215 |
//! | `max_outstanding_r2t` | 1 to 65535 |
//! | `timeout` | time limit of a command, in seconds; 0 for no limit |
//! | `login_timeout` | time limit of connect and login together, in seconds, from 1 on |
//! | `retry_timeout` | time limit of a disk for errors that may pass by themselves, in seconds; see [`Options::with_retry_timeout`](crate::Options::with_retry_timeout). Also called `patience` |
//! | `open_timeout` | time limit of retries while a target is not available yet, in seconds; see [`Options::with_open_timeout`](crate::Options::with_open_timeout). Also called `open_patience` |
//! | `poll` | interval at which an idle disk polls its unit for changes, in seconds, 0 for never; see [`Options::with_poll`](crate::Options::with_poll) |
//! | `force_usn` | the unit serial number that the unit must have |
//! | `reservation_key` | `0x1a2b`: the key that registers a disk with its unit; see [`Options::with_reservation_key`](crate::Options::with_reservation_key) |
//! | `portal` | one more portal of the same unit, `HOST[:PORT]`; may be given several times |
//! | `portals` | `auto`: use every portal that the target reports for itself |
//! | `tls` | `yes`: encrypt each connection by TLS 1.3, also those of further portals and redirections; see [`TlsOptions`] |
//! | `tls_ca` | file with the certificates of the trusted authorities (PEM); without it, those that the system trusts |
//! | `tls_name` | the name that the certificate of the peer must have, in place of `HOST` |
//! | `tls_pin` | `sha256:` and 64 hexadecimal digits: the digest of the peer's public key, which is checked in place of authority and name; may be given several times |
//! | `tls_cert`, `tls_key` | files with the certificate and the private key of this initiator (PEM), for a peer that requires a certificate |
//!
//! An unknown option is an error, because a mistyped option must not leave a session without the digest or
//! the authentication that the user wanted.

mod error;
mod option;
mod parameters;
mod text;
mod tls;

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{IscsiName, TargetAddress};
use iscsi_session::{Chap, Secret, TargetCredentials};

use option::UrlOptions;
use text::{decode, encode, names_port, parse_portal};

pub use error::UrlError;
pub use parameters::Parameters;
pub use tls::TlsOptions;

/// A parsed `iscsi://` URL; see the [module documentation](self) for the grammar. A part that the URL lacks is
/// `None`.
///
/// Neither `Debug` nor `Display` shows a password.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Url {
    /// Portal to connect to.
    pub portal: TargetAddress,
    /// Name of the target; `None` in a URL for discovery.
    pub target: Option<IscsiName>,
    /// Number of the logical unit, if the URL names one.
    pub lun: Option<Lun>,
    /// User of the initiator (CHAP_N).
    pub user: Option<String>,
    /// CHAP secret of the initiator.
    pub password: Option<Secret>,
    /// User name that the target must send (CHAP_N, mutual CHAP).
    pub target_user: Option<String>,
    /// CHAP secret of the target.
    pub target_password: Option<Secret>,
    /// Serial number that the unit must have (`force_usn`).
    pub serial_number: Option<String>,
    /// Further portals that lead to the same unit, for further sessions of a disk.
    #[doc(alias = "multipath")]
    pub portals: Vec<TargetAddress>,
    /// Whether the target is queried for its further portals (`portals=auto`).
    pub all_portals: bool,
    /// How the connections are encrypted; `None` for clear text.
    pub tls: Option<TlsOptions>,
    /// Session parameters that the URL sets.
    pub parameters: Parameters,
}

/// Scheme of a URL.
const SCHEME: &str = "iscsi://";
/// Scheme of a URL whose connections are encrypted.
const SECURE_SCHEME: &str = "iscsis://";

impl Url {
    /// Creates the URL of a target or of one of its units, without credentials.
    pub(crate) fn of(portal: TargetAddress, target: IscsiName, lun: Option<Lun>) -> Self {
        Self {
            portal: TargetAddress { portal_group_tag: None, ..portal },
            target: Some(target),
            lun,
            user: None,
            password: None,
            target_user: None,
            target_password: None,
            serial_number: None,
            portals: Vec::new(),
            all_portals: false,
            tls: None,
            parameters: Parameters::default(),
        }
    }

    /// Sets the host of the portal as the name that the certificate must have, unless the URL sets one. To be called before
    /// the portal is replaced by an address.
    pub(crate) fn keep_certificate_name(&mut self) {
        if let Some(tls) = &mut self.tls
            && tls.pins.is_empty()
        {
            tls.name.get_or_insert_with(|| self.portal.host.clone());
        }
    }

    /// Parses a URL. It does not read the environment.
    ///
    /// # Errors
    /// [`UrlError`] names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (rest, is_secure) = match (text.strip_prefix(SCHEME), text.strip_prefix(SECURE_SCHEME))
        {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(UrlError::scheme(text)),
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        if options.contains('@') {
            // This check comes first, because later checks quote parts of the text in errors, and the text
            // after the `@` may belong to a password.
            return Err(UrlError::AtBehindQuestionMark);
        }
        let (credentials, rest) = match rest.split_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        if rest.contains('@') {
            return Err(UrlError::SecondAt);
        }
        let (portal, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (target, lun) = parse_path(path)?;
        let (user, password) = credentials.map_or(Ok((None, None)), parse_credentials)?;
        let mut options = UrlOptions::parse(options)?;
        let is_asked = is_secure || options.is_tls.is_some();
        let tls = std::mem::take(&mut options.tls).check(is_asked)?;
        let has_ports = !options.lacks_port && names_port(portal);
        let portal = parse_portal(portal)?;
        if tls.is_some() && !has_ports {
            return Err(UrlError::TlsPort);
        }
        let UrlOptions { target_user, target_password, serial_number, portals, .. } = options;
        Ok(Self {
            portal,
            target,
            lun,
            user,
            password,
            target_user,
            target_password,
            serial_number,
            portals,
            all_portals: options.all_portals.unwrap_or_default(),
            tls,
            parameters: options.parameters,
        })
    }

    /// Returns the text of a URL without its passwords, so that it can be shown or stored. Escapes such as
    /// `%25` stay as they are written. If there is a second `@`, or an `@` after the first `?`, it is unknown where a password ends: the
    /// text is not a valid URL, and `iscsi://...` or `iscsis://...` is returned. For a text without the scheme, `...` is returned.
    ///
    /// ```
    /// # use iscsi_initiator::Url;
    /// let text = "iscsi://user:secret@host/iqn.2026-01.org.example:disk/0?target_password=x&auth=sha1";
    /// let kept = "iscsi://user@host/iqn.2026-01.org.example:disk/0?auth=sha1";
    /// assert_eq!(Url::without_passwords(text), kept);
    /// ```
    pub fn without_passwords(text: &str) -> String {
        let known = [SCHEME, SECURE_SCHEME];
        let Some(scheme) = known.into_iter().find(|scheme| text.starts_with(scheme)) else {
            return "...".to_owned();
        };
        let text = text.get(scheme.len()..).unwrap_or_default();
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        if text.matches('@').count() > usize::from(address.contains('@')) {
            return format!("{scheme}...");
        }
        let mut kept = match address.split_once('@') {
            Some((credentials, rest)) => {
                let user = separator(credentials).and_then(|at| credentials.get(..at));
                let user = user.unwrap_or(credentials);
                // Without a `:` after the user, an escape in the user would count as the start of the
                // password.
                let end = if user.contains('%') { ":" } else { "" };
                format!("{scheme}{user}{end}@{rest}")
            }
            None => format!("{scheme}{address}"),
        };
        let options = options.split('&').filter(|option| {
            let name = option.split('=').next().unwrap_or_default();
            !option.is_empty() && name != "target_password"
        });
        for (count, option) in options.enumerate() {
            kept.push(if count == 0 { '?' } else { '&' });
            kept.push_str(option);
        }
        kept
    }

    /// Sets credentials that the URL lacks from libiscsi's variables: `LIBISCSI_CHAP_USERNAME`,
    /// `LIBISCSI_CHAP_PASSWORD`, `LIBISCSI_CHAP_TARGET_USERNAME` and `LIBISCSI_CHAP_TARGET_PASSWORD`. Empty
    /// variables count as not set. A password may be any bytes. If a part of the credentials is still
    /// missing, [`chap`](Self::chap) returns an error.
    ///
    /// # Errors
    /// [`UrlError::Variable`] if a required user name is not UTF-8, because such a name must not count as not
    /// set.
    pub fn with_environment(
        mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, UrlError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let secret =
            |name: &str| variable(name).map(|value| Secret::from(value.into_encoded_bytes()));
        let user = |name: &'static str| {
            let text = variable(name).map(OsString::into_string).transpose();
            text.map_err(|_| UrlError::Variable(name))
        };
        if self.user.is_none() {
            self.user = user("LIBISCSI_CHAP_USERNAME")?;
        }
        if self.target_user.is_none() {
            self.target_user = user("LIBISCSI_CHAP_TARGET_USERNAME")?;
        }
        // Set even if no user is known, because ignoring a password would log in without the authentication
        // that the user wanted.
        self.password = self.password.or_else(|| secret("LIBISCSI_CHAP_PASSWORD"));
        self.target_password =
            self.target_password.or_else(|| secret("LIBISCSI_CHAP_TARGET_PASSWORD"));
        Ok(self)
    }

    /// Returns the CHAP credentials of the URL; `None` if it has none.
    ///
    /// # Errors
    /// A part of the credentials is missing: incomplete credentials must not count as none.
    pub fn chap(&self) -> Result<Option<Chap>, UrlError> {
        let Some(user) = &self.user else {
            let has_target = self.target_user.is_some() || self.target_password.is_some();
            return match (&self.password, has_target) {
                (Some(_), _) => Err(UrlError::PasswordAlone),
                (None, true) => Err(UrlError::TargetCredentialsAlone),
                (None, false) => Ok(None),
            };
        };
        let Some(password) = &self.password else {
            return Err(UrlError::MissingPassword(user.clone()));
        };
        let mut chap = Chap::new(user.clone(), password.clone());
        chap.target = self.target_credentials()?;
        self.parameters.apply_to_chap(&mut chap);
        Ok(Some(chap))
    }

    fn target_credentials(&self) -> Result<Option<TargetCredentials>, UrlError> {
        match (&self.target_user, &self.target_password) {
            (user, Some(secret)) => {
                let credentials = TargetCredentials::new(secret.clone());
                Ok(Some(match user {
                    Some(user) => credentials.with_user(user),
                    None => credentials,
                }))
            }
            (Some(user), None) => Err(UrlError::MissingTargetPassword(user.clone())),
            (None, None) => Ok(None),
        }
    }
}

fn parse_path(path: &str) -> Result<(Option<IscsiName>, Option<Lun>), UrlError> {
    let (target, lun) = path.split_once('/').unwrap_or((path, ""));
    let (lun, rest) = lun.split_once('/').unwrap_or((lun, ""));
    if !rest.is_empty() {
        return Err(UrlError::Trailing(rest.to_owned()));
    }
    match (target.is_empty(), lun.is_empty()) {
        (true, true) => Ok((None, None)),
        (true, false) => Err(UrlError::NoTarget),
        (false, true) => Ok((Some(parse_target(target)?), None)),
        (false, false) => Ok((Some(parse_target(target)?), Some(parse_lun(lun)?))),
    }
}

fn parse_target(text: &str) -> Result<IscsiName, UrlError> {
    Ok(IscsiName::parse(&decode(text, "target name")?)?)
}

fn parse_lun(text: &str) -> Result<Lun, UrlError> {
    let text = decode(text, "logical unit number")?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.and_then(Lun::new).ok_or(UrlError::Lun(text))
}

/// Parses the user and, if there is one, the password.
fn parse_credentials(text: &str) -> Result<(Option<String>, Option<Secret>), UrlError> {
    let (user, password) = match separator(text) {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
        None => (text, None),
    };
    if user.is_empty() {
        return Err(UrlError::NoUser);
    }
    let password = password.map(|password| decode(password, "password")).transpose()?;
    let password = password.filter(|password| !password.is_empty());
    Ok((Some(decode(user, "user")?), password.map(|password| Secret::from(password.into_bytes()))))
}

/// Returns the index of the byte that separates user and password.
fn separator(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let escape = |at: usize| {
        let digits = bytes.get(at + 1..at + 3).unwrap_or_default();
        digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit)
    };
    let ends_user = |(at, byte): (usize, &u8)| *byte == b':' || (*byte == b'%' && !escape(at));
    bytes.iter().enumerate().position(ends_user).or_else(|| text.find('%'))
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Url {
    type Error = UrlError;

    fn try_from(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl TryFrom<&String> for Url {
    type Error = UrlError;

    fn try_from(text: &String) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Url {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Self, UrlError> {
        Self::parse(&text)
    }
}

impl From<&Self> for Url {
    fn from(url: &Self) -> Self {
        url.clone()
    }
}

impl fmt::Display for Url {
    /// Writes the portal, the target and the unit, without credentials and options. [`parse`](Self::parse)
    /// can read the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", scheme(self.tls.is_some()), encode(&portal_name(&self.portal)))?;
        if let Some(target) = &self.target {
            write!(f, "/{}", encode(target.as_str()))?;
        }
        if let Some(lun) = &self.lun {
            write!(f, "/{lun}")?;
        }
        Ok(())
    }
}

/// Returns the scheme of a URL.
pub(crate) const fn scheme(is_encrypted: bool) -> &'static str {
    if is_encrypted { SECURE_SCHEME } else { SCHEME }
}

/// Returns `host:port`, with an IPv6 address in brackets.
pub(crate) fn portal_name(address: &TargetAddress) -> String {
    let TargetAddress { host, port, .. } = address;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests;
