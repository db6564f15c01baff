//! Advice on errors of NBD.

use std::fmt;
use std::io::ErrorKind;

use iscsi_nbd::OptionError;
use iscsi_nbd::client::HandshakeError;

use super::NbdError;

/// Advice on an [`NbdError`]. Its text is a part of a sentence.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum NbdAdvice {
    /// The text is not the URI of an export.
    WriteUri,
    /// The text does not name a dirty bitmap.
    WriteBitmap,
    /// This program cannot encrypt connections.
    UseTunnel,
    /// The server requires TLS.
    UseTls,
    /// The server has no TLS.
    ServeTls,
    /// The options of TLS cannot be used.
    CheckTlsOptions,
    /// The server may require a certificate of the client.
    GiveCertificate,
    /// The server did not prove its identity.
    CheckCertificate,
    /// No server listens at the address yet.
    WaitForServer,
    /// The host is unknown, or no route leads to it.
    CheckAddress,
    /// The permissions of the socket forbid its use.
    CheckPermissions,
    /// Another program listens at the address, or the server does not accept another client.
    CheckServer,
    /// The server has no export of this name.
    ListExports,
    /// The server is too old.
    NewerServer,
    /// The server refuses the export, and reports no reason that suggests a remedy.
    ReadLog,
    /// The export has no bitmap of this name.
    ExportBitmap,
    /// The connection was lost, and requests do not wait for the server.
    SetRetryTimeout,
    /// The server was unreachable for longer than requests wait.
    LongerRetryTimeout,
    /// The server exports another disk or file under this name.
    CheckExport,
    /// Everything since the last flush must be written again: the server may have lost it.
    WriteAgain,
}

impl NbdAdvice {
    /// Returns the text of the advice.
    pub const fn text(self) -> &'static str {
        match self {
            Self::WriteUri => {
                "write nbd://HOST:PORT/EXPORT, nbds:// for TLS, or nbd+unix:///EXPORT?socket=PATH"
            }
            Self::WriteBitmap => "write the URI of an export, and behind it qemu:dirty-bitmap:NAME",
            Self::UseTunnel => "use a program that has TLS, or a tunnel",
            Self::UseTls => "begin the URI with nbds://, and name the authority by tls_ca",
            Self::ServeTls => {
                "set up TLS at the server (qemu-nbd --tls-creds, nbdkit --tls, block-serve --tls)"
            }
            Self::CheckTlsOptions => "check the options of TLS in the URI",
            Self::GiveCertificate => {
                "it may require a certificate, or another one, by tls_cert and tls_key in the URI; look at its log"
            }
            Self::CheckCertificate => {
                "check the certificate of the server, and tls_ca, tls_name or tls_pin in the URI"
            }
            Self::WaitForServer => {
                "check the address, and that the server is running, or wait for it (?open_timeout=SECONDS in the URI)"
            }
            Self::CheckAddress => "check the address and the route",
            Self::CheckPermissions => "check the permissions of the socket",
            Self::CheckServer => {
                "check that an NBD server listens there, and that it takes another client (qemu-nbd --shared)"
            }
            Self::ListExports => "check the name; nbdinfo --list lists the exports of a server",
            Self::NewerServer => {
                "use a newer server: qemu-nbd, nbdkit, or nbd-server 3.10 or later"
            }
            Self::ReadLog => "look at the log of the server",
            Self::ExportBitmap => "name the bitmap when QEMU begins to export the node",
            Self::SetRetryTimeout => "?retry_timeout=SECONDS in the URI waits for the server",
            Self::LongerRetryTimeout => "?retry_timeout=SECONDS in the URI waits longer",
            Self::CheckExport => "check what the server exports, and open it again",
            Self::WriteAgain => "write again",
        }
    }
}

impl fmt::Display for NbdAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl NbdError {
    /// Returns what to do about the error; `None` where the text says all that is known.
    pub fn advice(&self) -> Option<NbdAdvice> {
        Some(match self {
            Self::Uri(_) => NbdAdvice::WriteUri,
            Self::BitmapForm => NbdAdvice::WriteBitmap,
            Self::Tls => NbdAdvice::UseTunnel,
            Self::TlsOptions(_) => NbdAdvice::CheckTlsOptions,
            Self::NotTrusted { .. } => NbdAdvice::CheckCertificate,
            Self::TlsEnded { .. } => NbdAdvice::GiveCertificate,
            Self::Connect { cause, .. } => advice_on_connect(cause.kind()),
            Self::Silent(_) | Self::Protocol(_) => NbdAdvice::CheckServer,
            Self::Handshake { cause, .. } => advice_on_handshake(cause),
            Self::NoBitmap(_) => NbdAdvice::ExportBitmap,
            Self::Lost => NbdAdvice::SetRetryTimeout,
            Self::Away { .. } => NbdAdvice::LongerRetryTimeout,
            Self::Changed(_) => NbdAdvice::CheckExport,
            Self::UnflushedWritesLost => NbdAdvice::WriteAgain,
            Self::TooLarge { .. } | Self::Bitmap { .. } => NbdAdvice::ReadLog,
        })
    }
}

fn advice_on_connect(kind: ErrorKind) -> NbdAdvice {
    const ADVICE: [(ErrorKind, NbdAdvice); 5] = [
        (ErrorKind::ConnectionRefused, NbdAdvice::WaitForServer),
        (ErrorKind::NotFound, NbdAdvice::WaitForServer),
        (ErrorKind::PermissionDenied, NbdAdvice::CheckPermissions),
        (ErrorKind::ConnectionReset, NbdAdvice::CheckServer),
        (ErrorKind::BrokenPipe, NbdAdvice::CheckServer),
    ];
    let known = ADVICE.iter().find(|(known, _)| *known == kind);
    known.map_or(NbdAdvice::CheckAddress, |(_, advice)| *advice)
}

const fn advice_on_handshake(cause: &HandshakeError) -> NbdAdvice {
    match cause {
        HandshakeError::Refused { error, .. } => match error {
            OptionError::Unknown => NbdAdvice::ListExports,
            OptionError::TlsRequired => NbdAdvice::UseTls,
            OptionError::Shutdown => NbdAdvice::WaitForServer,
            OptionError::Unsupported
            | OptionError::Policy
            | OptionError::Invalid
            | OptionError::Platform
            | OptionError::BlockSizeRequired
            | OptionError::TooBig => NbdAdvice::ReadLog,
        },
        HandshakeError::NoTls => NbdAdvice::ServeTls,
        HandshakeError::TooOld | HandshakeError::Oldstyle => NbdAdvice::NewerServer,
        HandshakeError::Protocol(_) | _ => NbdAdvice::CheckServer,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn connect(kind: ErrorKind) -> NbdError {
        let os = io::Error::from(kind);
        NbdError::Connect { place: "192.0.2.1:10809".to_owned(), cause: os }
    }

    fn refused(error: OptionError) -> NbdError {
        let cause = HandshakeError::Refused { error, message: String::new() };
        NbdError::Handshake {
            place: "192.0.2.1:10809".to_owned(),
            export: "disk".to_owned(),
            cause,
        }
    }

    #[test]
    fn a_sentence_says_where_and_what_to_do() {
        for (error, fact, advice) in [
            (
                connect(ErrorKind::ConnectionRefused),
                "no NBD server listens at 192.0.2.1:10809",
                NbdAdvice::WaitForServer,
            ),
            (
                connect(ErrorKind::PermissionDenied),
                "cannot connect to the NBD server at 192.0.2.1:10809: permission denied",
                NbdAdvice::CheckPermissions,
            ),
            (
                connect(ErrorKind::HostUnreachable),
                "cannot connect to the NBD server at 192.0.2.1:10809: host unreachable",
                NbdAdvice::CheckAddress,
            ),
            (
                refused(OptionError::Unknown),
                "export \"disk\" of the NBD server at 192.0.2.1:10809: the server has no such export",
                NbdAdvice::ListExports,
            ),
            (
                refused(OptionError::TlsRequired),
                "export \"disk\" of the NBD server at 192.0.2.1:10809: the server wants TLS first",
                NbdAdvice::UseTls,
            ),
        ] {
            assert_eq!((error.to_string().as_str(), error.advice()), (fact, Some(advice)));
        }
    }
}
