//! The server's side of TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{authorities, blocking, certificates, changes, private_key, unusable};
use crate::refusal::Refusal;

/// The server's side of TLS 1.3, by rustls. When one of its files has changed, for example because the certificate was renewed, the next
/// client gets the new one.
#[derive(Debug)]
pub struct Acceptor {
    /// `None` if certificate and key came from memory.
    files: Option<Arc<ServerFiles>>,
    known: Mutex<Known>,
}

/// The files of a server.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The certificate of the server, followed by those of intermediate authorities (PEM).
    pub certificate: PathBuf,
    /// The private key of the certificate (PEM, unencrypted).
    pub key: PathBuf,
    /// The certificates of the authorities that sign those of clients (PEM). If it is given, a client without such a certificate is
    /// refused; otherwise each client is accepted.
    pub client_ca: Option<PathBuf>,
}

/// A configuration, with the modification times of the files that it was made from.
#[derive(Clone, Debug)]
struct Known {
    config: Arc<ServerConfig>,
    changes: Vec<Option<SystemTime>>,
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// `InvalidInput` if a file cannot be read, or does not hold what it should, or the key is not that of the certificate.
    pub fn new(files: ServerFiles) -> io::Result<Self> {
        Ok(Self { known: Mutex::new(Known::read(&files)?), files: Some(Arc::new(files)) })
    }

    /// Takes the certificate, followed by those of intermediate authorities, and its private key as PEM texts. Each client is
    /// accepted, and neither changes.
    ///
    /// # Errors
    /// `InvalidInput` if a text does not hold what it should, or the key is not that of the certificate.
    pub fn from_pem(certificate: &str, key: &str) -> io::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
        let chain = chain.collect::<Result<_, _>>().map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
        let config = builder()?.with_no_client_auth().with_single_cert(chain, key);
        let config = Arc::new(config.map_err(unusable)?);
        Ok(Self { files: None, known: Mutex::new(Known { config, changes: Vec::new() }) })
    }

    /// Encrypts the connection of a client. Returns after the handshake.
    ///
    /// # Errors
    /// `InvalidData` if the client is not trusted, or does not speak TLS 1.3; other errors are those of the stream.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let config = self.config().await?;
        TlsAcceptor::from(config).accept(stream).await.map_err(Refusal::of_accept)
    }

    /// Returns the configuration. Reads the files again if one of them has changed.
    async fn config(&self) -> io::Result<Arc<ServerConfig>> {
        let known = self.known().clone();
        let Some(files) = self.files.clone() else { return Ok(known.config) };
        let known = blocking(move || Ok(known.renew(&files))).await?;
        *self.known() = known.clone();
        Ok(known.config)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn read(files: &ServerFiles) -> io::Result<Self> {
        let changes = changes(&files.all());
        Ok(Self { config: files.config()?, changes })
    }

    /// Returns a new configuration if a file has changed. While the new files cannot be used, the old configuration stays.
    fn renew(self, files: &ServerFiles) -> Self {
        let changes = changes(&files.all());
        if changes == self.changes {
            return self;
        }
        Self::read(files).unwrap_or_else(|error| {
            tracing::warn!(%error, "the changed files of TLS cannot be used; the old ones stay in use");
            Self { changes, ..self }
        })
    }
}

/// Begins a configuration: TLS 1.3 only, by ring.
fn builder() -> io::Result<ConfigBuilder<ServerConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(unusable)
}

impl ServerFiles {
    fn all(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }

    fn config(&self) -> io::Result<Arc<ServerConfig>> {
        let builder = builder()?;
        let builder = match self.client_ca.as_deref().map(authorities).transpose()? {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let provider = Arc::clone(builder.crypto_provider());
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
            }
        };
        let (chain, key) = (certificates(&self.certificate)?, private_key(&self.key)?);
        let config = builder.with_single_cert(chain, key).map_err(|error| {
            let [certificate, key] = [&self.certificate, &self.key].map(|file| Path::display(file));
            unusable(format!("{certificate} and {key}: {error}"))
        })?;
        Ok(Arc::new(config))
    }
}
