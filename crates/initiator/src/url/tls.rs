//! Defines how the connections of a URL are encrypted.

use std::path::PathBuf;

use super::error::UrlError;

/// How the connections of a URL are encrypted, and what the peer must prove (TLS 1.3). The peer is what ends the encryption at
/// the far end: mostly a tunnel in front of the target.
///
/// It takes [`Options::with_tls`](crate::Options::with_tls) to open such a URL. Nothing falls back to clear text, and the check
/// of the peer cannot be left out.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// File with the certificates of the authorities that may have signed the certificate of the peer (PEM). `None` for the
    /// authorities that this system trusts.
    pub ca: Option<PathBuf>,
    /// Name that the certificate must have. `None` for the host of the portal that is connected to.
    pub name: Option<String>,
    /// SHA-256 digests of the public keys (SubjectPublicKeyInfo, RFC 5280 §4.1.2.7) of which the peer must have one. If there
    /// is any, it counts in place of authorities and name, as for the self-signed certificate of a tunnel.
    pub pins: Vec<[u8; 32]>,
    /// File with the certificate that this initiator shows, and those of the authorities between (PEM); `None` if it
    /// shows none.
    pub certificate: Option<PathBuf>,
    /// File with the private key of [`certificate`](Self::certificate) (PEM, unencrypted).
    pub key: Option<PathBuf>,
}

/// Values of the options of TLS in a URL.
#[derive(Default)]
pub(super) struct TlsValues {
    pub(super) is_on: Option<bool>,
    pub(super) ca: Option<PathBuf>,
    pub(super) name: Option<String>,
    pub(super) pins: Vec<[u8; 32]>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

impl TlsValues {
    /// Returns the options, `None` for clear text. `is_secure` says whether the scheme of the URL asks for TLS.
    pub(super) fn finish(&self, is_secure: bool) -> Result<Option<TlsOptions>, UrlError> {
        let Self { is_on, ca, name, pins, certificate, key } = self;
        let options = TlsOptions {
            ca: ca.clone(),
            name: name.clone(),
            pins: pins.clone(),
            certificate: certificate.clone(),
            key: key.clone(),
        };
        let is_asked = is_secure || is_on.is_some();
        if !is_asked && options == TlsOptions::default() {
            Ok(None)
        } else if !is_asked {
            Err(UrlError::TlsNotAsked)
        } else if !options.pins.is_empty() && (options.ca.is_some() || options.name.is_some()) {
            Err(UrlError::TlsPinAndName)
        } else if options.certificate.is_some() != options.key.is_some() {
            Err(UrlError::TlsHalfCertificate)
        } else {
            Ok(Some(options))
        }
    }
}

/// Parses the SHA-256 digest of a public key: `sha256:` and 64 hexadecimal digits.
pub(super) fn pin(value: &str) -> Option<[u8; 32]> {
    let digits = value.strip_prefix("sha256:").filter(|digits| digits.len() == 64)?;
    let mut pin = [0; 32];
    for (byte, pair) in pin.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let is_hex = pair.iter().all(u8::is_ascii_hexdigit);
        let pair = std::str::from_utf8(pair).ok().filter(|_| is_hex)?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(pin)
}
