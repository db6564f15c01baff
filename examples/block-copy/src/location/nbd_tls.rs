//! Encrypts the connections to NBD servers (`nbds://`).

use iscsi_copy::{NbdError, NbdUri};

/// Gives a URI what encrypts its connections, if it asks for TLS and this program has it.
///
/// # Errors
/// [`NbdError::TlsOptions`] for options of TLS that are unknown or malformed, or do not fit each other.
pub(crate) fn provide(uri: NbdUri) -> Result<NbdUri, NbdError> {
    #[cfg(feature = "tls")]
    let uri = match uri.tls().map(imp::NbdRustls::new).transpose()? {
        Some(tls) => uri.with_tls(std::sync::Arc::new(tls)),
        None => uri,
    };
    Ok(uri)
}

#[cfg(feature = "tls")]
mod imp {
    use std::io;
    use std::path::Path;
    use std::pin::Pin;

    use iscsi_copy::{NbdError, NbdStream, NbdTls};
    use iscsi_initiator::TlsOptions;
    use iscsi_tls::Rustls;
    use tokio::net::TcpStream;

    /// TLS by rustls, with the options of a URI.
    #[derive(Debug)]
    pub(super) struct NbdRustls {
        rustls: Rustls,
        options: TlsOptions,
    }

    impl NbdRustls {
        pub(super) fn new<'a>(
            pairs: impl Iterator<Item = (&'a str, &'a str)>,
        ) -> Result<Self, NbdError> {
            let pairs: Vec<_> = pairs.collect();
            let has = |wanted| pairs.iter().any(|(name, _)| *name == wanted);
            for (theirs, ours) in SAME {
                if has(theirs) && has(ours) {
                    let reason = format!("{theirs} sets {ours} as well; leave one of them out");
                    return Err(NbdError::TlsOptions(reason));
                }
            }
            let mut own = Vec::new();
            for (name, value) in pairs {
                own.extend(own_options(name, value).map_err(NbdError::TlsOptions)?);
            }
            let own = own.iter().map(|(name, value)| (*name, value.as_str()));
            let options = TlsOptions::from_pairs(own);
            let options = options.map_err(|error| NbdError::TlsOptions(error.to_string()))?;
            Ok(Self { rustls: Rustls::default(), options })
        }
    }

    /// Options of libnbd, and those of an iSCSI URL that they set.
    const SAME: [(&str, &str); 4] = [
        ("tls-certificates", "tls_ca"),
        ("tls-certificates", "tls_cert"),
        ("tls-certificates", "tls_key"),
        ("tls-hostname", "tls_name"),
    ];

    /// Returns an option of a URI as options of an iSCSI URL. Those that begin with `tls-` are options of libnbd.
    fn own_options<'a>(name: &'a str, value: &str) -> Result<Vec<(&'a str, String)>, String> {
        match (name, value) {
            ("tls-certificates", folder) if !folder.is_empty() => {
                let file = |name| format!("{folder}/{name}");
                let mut own = vec![("tls_ca", file("ca-cert.pem"))];
                let certificate = file("client-cert.pem");
                if Path::new(&certificate).exists() {
                    own.extend([("tls_cert", certificate), ("tls_key", file("client-key.pem"))]);
                }
                Ok(own)
            }
            ("tls-hostname", name) if !name.is_empty() => Ok(vec![("tls_name", name.to_owned())]),
            ("tls-verify-peer", "true" | "1" | "yes") => Ok(Vec::new()),
            ("tls-verify-peer", _) => {
                Err("the server is always checked; name its authority by tls_ca, or pin its key by tls_pin".to_owned())
            }
            ("tls-psk-file" | "tls-username", _) => {
                Err("keys shared beforehand (PSK) are not supported; give the server a certificate, and pin its key by tls_pin".to_owned())
            }
            (name, _) if name.starts_with("tls-") => {
                Err(format!("the option {name} is not known, or lacks its value"))
            }
            (name, value) => Ok(vec![(name, value.to_owned())]),
        }
    }

    impl NbdTls for NbdRustls {
        fn secure<'a>(
            &'a self,
            stream: TcpStream,
            host: &'a str,
        ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn NbdStream>>> + Send + 'a>> {
            Box::pin(async move {
                let stream = self.rustls.connect_nbd(stream, host, &self.options).await?;
                Ok(Box::new(stream) as Box<dyn NbdStream>)
            })
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    fn error_of(text: &str) -> Option<String> {
        text.parse().and_then(provide).err().map(|error| error.to_string())
    }

    #[test]
    fn options_of_both_kinds_are_known_and_the_check_stays_on() {
        for text in [
            "nbd://host/x",
            "nbds://host/x",
            "nbds://host/x?tls_ca=ca.pem&tls_name=san.example&retry_timeout=5",
            "nbds://host/x?tls-certificates=/nowhere&tls-verify-peer=true&tls-hostname=h",
        ] {
            assert_eq!(error_of(text), None, "{text}");
        }
        for (text, reason) in [
            ("nbds://host/x?tls_pin=sha256:1", "64 hexadecimal digits"),
            ("nbds://host/x?tls_cert=c.pem", "of tls_cert and tls_key"),
            ("nbds://host/x?tls_verify=no", "tls_verify"),
            ("nbds://host/x?tls-verify-peer=false", "always checked"),
            ("nbds://host/x?tls-psk-file=keys", "PSK"),
            ("nbds://host/x?tls-certificates=", "lacks its value"),
            ("nbds://host/x?tls-certificates=/nowhere&tls_ca=ca.pem", "sets tls_ca as well"),
            ("nbds://host/x?tls_key=k.pem&tls-certificates=/nowhere", "sets tls_key as well"),
            ("nbds://host/x?tls_name=h&tls-hostname=h", "sets tls_name as well"),
            ("nbds://host/x?tls-hostname=", "lacks its value"),
            ("nbds://host/x?tls-certificates=/nowhere&tls_pin=sha256:PIN", "not checked"),
            ("nbds://host/x?tls-hostname=h&tls_pin=sha256:PIN", "not checked"),
        ] {
            let text = text.replace("PIN", &"0".repeat(64));
            let error = error_of(&text).unwrap_or_default();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
