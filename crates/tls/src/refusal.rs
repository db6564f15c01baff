//! Why a connection failed at the TLS layer, in words that name the options of a URL.

use std::fmt;
use std::io::{self, ErrorKind};

use rustls::{AlertDescription, CertificateError};
use webpki::Error as CertificateFault;

/// An error of rustls. Its message says what to change where the options of the URL can change it.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) rustls::Error);

impl Refusal {
    /// Returns the error of a client's handshake in these words. That the server has ended the handshake is `ConnectionAborted`.
    pub(crate) fn of_connect(error: io::Error) -> io::Error {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(cause @ rustls::Error::AlertReceived(_)) => {
                io::Error::new(ErrorKind::ConnectionAborted, Self(cause.clone()))
            }
            Some(cause) => io::Error::new(error.kind(), Self(cause.clone())),
            None if error.kind() == ErrorKind::UnexpectedEof => io::Error::new(
                ErrorKind::ConnectionAborted,
                "the server has closed it in the handshake of TLS",
            ),
            None => error,
        }
    }

    /// Returns the error of a server's handshake, in these words unless they name options of a client.
    pub(crate) fn of_accept(error: io::Error) -> io::Error {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(cause @ rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                io::Error::new(error.kind(), Self(cause.clone()))
            }
            _ => error,
        }
    }
}

impl fmt::Display for Refusal {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "an error without options to change has the words of rustls"
    )]
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use rustls::Error as Tls;

        match &self.0 {
            Tls::InvalidCertificate(CertificateError::UnknownIssuer) => {
                formatter.write_str("no trusted authority has issued its certificate")
            }
            Tls::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<CertificateFault>() {
                    Some(CertificateFault::CaUsedAsEndEntity) => formatter.write_str(
                        "its certificate is that of an authority (CA:TRUE), as many self-signed certificates are; pin \
                         its key by tls_pin instead of tls_ca",
                    ),
                    _ => other.0.fmt(formatter),
                }
            }
            Tls::InvalidMessage(_) => {
                write!(formatter, "{}: does it speak TLS at this port?", self.0)
            }
            Tls::AlertReceived(
                AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
            ) => {
                write!(formatter, "{}: it may want a certificate, by tls_cert and tls_key", self.0)
            }
            Tls::AlertReceived(
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown,
            ) => write!(formatter, "{}: it refuses the certificate of tls_cert", self.0),
            _ => self.0.fmt(formatter),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
