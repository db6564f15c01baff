//! Encrypts the connections of clients.

use std::io;

#[cfg(not(feature = "tls"))]
use iscsi_examples_common::program::ProgramError;
use iscsi_nbd::server::TlsPolicy;

use crate::args::{TlsArgs, TlsMode};
use crate::error::Error;
use crate::listen::Stream;

/// Whether clients may or must use TLS, and the certificate of the server.
#[derive(Debug, Default)]
pub struct ClientTls {
    policy: TlsPolicy,
    acceptor: Option<Acceptor>,
}

#[cfg(feature = "tls")]
type Acceptor = iscsi_tls::Acceptor;
/// A program without the feature `tls` has none.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
enum Acceptor {}

impl ClientTls {
    /// Reads the files of the options.
    ///
    /// # Errors
    /// [`Error::Tls`] if a file cannot be used; an error of usage if TLS is asked for and this program has none.
    pub(crate) fn new(args: &TlsArgs) -> Result<Self, Error> {
        let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
            return Ok(Self::default());
        };
        let policy = match args.tls {
            Some(TlsMode::Off) => return Ok(Self::default()),
            Some(TlsMode::Allow) => TlsPolicy::Allow,
            Some(TlsMode::Require) | None => TlsPolicy::Require,
        };
        #[cfg(feature = "tls")]
        {
            let (certificate, key) = (certificate.clone(), key.clone());
            let client_ca = args.tls_ca.clone();
            let files = iscsi_tls::ServerFiles { certificate, key, client_ca };
            let acceptor = iscsi_tls::Acceptor::new(files).map_err(Error::Tls)?;
            Ok(Self { policy, acceptor: Some(acceptor) })
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (certificate, key, policy);
            Err(ProgramError::usage("this program was built without TLS").into())
        }
    }

    pub(crate) const fn policy(&self) -> TlsPolicy {
        self.policy
    }

    /// Encrypts the connection of a client that starts TLS.
    pub(crate) async fn accept(&self, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        let Some(acceptor) = &self.acceptor else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        #[cfg(feature = "tls")]
        return Ok(Box::new(Box::pin(acceptor.accept(stream)).await?));
        #[cfg(not(feature = "tls"))]
        {
            drop(stream);
            match *acceptor {}
        }
    }
}

/// A certificate of localhost, for tests with clients over TLS.
#[cfg(test)]
#[cfg(feature = "tls")]
pub(crate) mod tests {
    use std::path::PathBuf;

    use iscsi_initiator::TlsOptions;
    use tempfile::TempDir;
    use tokio::io::{AsyncRead, AsyncWrite};

    use super::*;

    pub(crate) struct Certificate(TempDir);

    impl Certificate {
        pub(crate) fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(folder.path().join("pem"), made.cert.pem()).unwrap();
            std::fs::write(folder.path().join("key"), made.signing_key.serialize_pem()).unwrap();
            Self(folder)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        pub(crate) fn serve(&self, mode: TlsMode) -> ClientTls {
            let (tls_cert, tls_key) = (Some(self.file("pem")), Some(self.file("key")));
            let args = TlsArgs { tls: Some(mode), tls_cert, tls_key, tls_ca: None };
            ClientTls::new(&args).unwrap()
        }

        /// Encrypts the client's end of a stream.
        pub(crate) async fn secure<S: AsyncRead + AsyncWrite + Send + Unpin>(
            &self,
            stream: S,
        ) -> impl Stream {
            let mut options = TlsOptions::default();
            options.ca = Some(self.file("pem"));
            let rustls = iscsi_tls::Rustls::default();
            Box::pin(rustls.connect_nbd(stream, "localhost", &options)).await.unwrap()
        }
    }
}
