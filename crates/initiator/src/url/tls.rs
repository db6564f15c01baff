//! Defines how the connections of a URL are encrypted.

use std::path::PathBuf;

use super::error::UrlError;

/// Options of TLS: how the connections of a URL are encrypted, and how the peer is checked. The peer is the host where the
/// encryption ends, mostly a tunnel in front of the target.
///
/// To open such a URL, the initiator needs [`Options::with_tls`](crate::Options::with_tls). The peer is always checked, and no
/// connection falls back to clear text.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// File with the certificates of the authorities that are trusted to sign the certificate of the peer (PEM). `None` for the
    /// authorities that this system trusts.
    pub ca: Option<PathBuf>,
    /// Name that the certificate of the peer must have. `None` for the host of the portal.
    pub name: Option<String>,
    /// SHA-256 digests of public keys (SubjectPublicKeyInfo, RFC 5280 §4.1.2.7). If there are any, the peer must have one of these keys,
    /// and the authority, the names and the dates of its certificate are not checked. This suits a self-signed certificate.
    pub pins: Vec<[u8; 32]>,
    /// File with the certificate of this initiator, followed by those of intermediate authorities (PEM). `None` if the
    /// initiator has none.
    pub certificate: Option<PathBuf>,
    /// File with the private key of [`certificate`](Self::certificate) (PEM, unencrypted).
    pub key: Option<PathBuf>,
}

impl TlsOptions {
    /// Checks the options of a URL together, and returns them; `None` for clear text. `is_asked` says whether the URL asks for
    /// TLS, by its scheme or by `tls=yes`.
    pub(super) fn check(self, is_asked: bool) -> Result<Option<Self>, UrlError> {
        if !is_asked && self == Self::default() {
            Ok(None)
        } else if !is_asked {
            Err(UrlError::TlsNotAsked)
        } else if !self.pins.is_empty() && (self.ca.is_some() || self.name.is_some()) {
            Err(UrlError::TlsPinAndName)
        } else if self.certificate.is_some() != self.key.is_some() {
            Err(UrlError::TlsHalfCertificate)
        } else {
            Ok(Some(self))
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
