//! Makes the configuration of rustls for a client from the options of a URL, and encrypts connections with it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use iscsi_initiator::transport::{Pending, Socket, Tls};
use iscsi_initiator::{TargetAddress, TlsOptions};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pinned::Pinned;
use crate::refusal::Refusal;
use crate::socket::TlsSocket;

/// The client's side of TLS, by rustls: for iSCSI by [`Options::with_tls`](iscsi_initiator::Options::with_tls), and for NBD by
/// [`connect_nbd`](Self::connect_nbd).
///
/// Sessions with the same options share tickets, so that later sessions can resume earlier ones. When a file of the options has changed,
/// for example because a certificate was renewed, the next connection reads it again.
#[derive(Debug, Default)]
pub struct Rustls {
    configs: Mutex<Configs>,
}

/// The configurations that were made.
type Configs = HashMap<(TlsOptions, Protocol), Known>;

/// The protocol that is encrypted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Protocol {
    Iscsi,
    Nbd,
}

impl Protocol {
    /// Returns the versions of TLS. Servers of NBD on hypervisors are older than the tunnels in front of iSCSI targets.
    const fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::Iscsi => VERSIONS.split_at(1).0,
            Self::Nbd => &VERSIONS,
        }
    }
}

/// A configuration, with the modification times of the files that it was made from.
#[derive(Debug)]
struct Known {
    config: Arc<ClientConfig>,
    changes: Vec<Option<SystemTime>>,
}

impl Tls for Rustls {
    fn secure<'a>(
        &'a self,
        socket: Box<dyn Socket>,
        portal: &'a TargetAddress,
        options: &'a TlsOptions,
    ) -> Pending<'a, Box<dyn Socket>> {
        Box::pin(async move {
            let name = server_name(options.name.as_deref().unwrap_or(&portal.host))?;
            let config = self.config(options, Protocol::Iscsi).await?;
            let socket = TlsSocket::connect(socket, config, name).await?;
            Ok(Box::new(socket) as Box<dyn Socket>)
        })
    }
}

impl Rustls {
    /// Encrypts the connection to an NBD server, which has agreed to start TLS, by TLS 1.3 or 1.2. Returns after the handshake. `host`
    /// is the host name or address in the URI of the server.
    ///
    /// # Errors
    /// `InvalidData` if the server is not trusted, `InvalidInput` if the options cannot be used, `ConnectionAborted` if the server has ended
    /// the handshake; other errors are those of the stream.
    pub async fn connect_nbd<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
        options: &TlsOptions,
    ) -> io::Result<TlsStream<S>> {
        let name = server_name(options.name.as_deref().unwrap_or(host))?;
        let config = self.config(options, Protocol::Nbd).await?;
        TlsConnector::from(config).connect(name, stream).await.map_err(Refusal::of_connect)
    }

    /// Returns the configuration for these options. Makes a new one if there is none, or if a file has changed.
    async fn config(
        &self,
        options: &TlsOptions,
        protocol: Protocol,
    ) -> io::Result<Arc<ClientConfig>> {
        let files = [&options.ca, &options.certificate, &options.key];
        let files = files.into_iter().flatten().cloned().collect::<Vec<_>>();
        // A pin needs no file, so nothing blocks, and no thread is needed: a simulation in virtual time has none.
        let is_in_memory = files.is_empty() && !options.pins.is_empty();
        let changes =
            if is_in_memory { Vec::new() } else { blocking(move || Ok(changes(&files))).await? };
        let key = (options.clone(), protocol);
        let known = |configs: &Configs| {
            let known = configs.get(&key).filter(|known| known.changes == changes);
            known.map(|known| Arc::clone(&known.config))
        };
        if let Some(config) = known(&self.configs()) {
            return Ok(config);
        }
        let asked = options.clone();
        let make = move || make(&asked, protocol);
        let config = if is_in_memory { make()? } else { blocking(make).await? };
        let mut configs = self.configs();
        // Another session may have made the configuration meanwhile, and may have tickets already.
        if let Some(config) = known(&configs) {
            return Ok(config);
        }
        let new = Known { config: Arc::clone(&config), changes };
        configs.insert(key.clone(), new);
        Ok(config)
    }

    fn configs(&self) -> MutexGuard<'_, Configs> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work that reads files on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Returns the modification time of each file; `None` if it is not available.
pub(crate) fn changes(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    files.iter().map(|file| file.metadata().and_then(|file| file.modified()).ok()).collect()
}

/// Returns the name that the peer must prove.
fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    // The zone of a link-local address (RFC 4007 §11) has a meaning on this host only.
    let host = host.split('%').next().unwrap_or_default();
    ServerName::try_from(host.to_owned())
        .map_err(|_| unusable(format!("{host:?} is no name that a certificate can have")))
}

pub(crate) fn make(options: &TlsOptions, protocol: Protocol) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(protocol.versions())
        .map_err(unusable)?;
    let builder = if options.pins.is_empty() {
        builder.with_root_certificates(roots(options.ca.as_deref())?)
    } else {
        let pinned = Pinned::new(options.pins.clone(), provider.signature_verification_algorithms);
        builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned))
    };
    Ok(Arc::new(with_own_certificate(builder, options)?))
}

fn with_own_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    options: &TlsOptions,
) -> io::Result<ClientConfig> {
    let (certificate, key) = match (&options.certificate, &options.key) {
        (None, None) => return Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) | (None, Some(_)) => {
            return Err(unusable("a certificate and its key go together"));
        }
    };
    builder.with_client_auth_cert(certificates(certificate)?, private_key(key)?).map_err(unusable)
}

/// Returns the private key of a file.
pub(crate) fn private_key(file: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| of_file(file, "private key", &error))
}

/// Returns the certificates of the authorities: those of a file, or else those that the system trusts.
fn roots(file: Option<&Path>) -> io::Result<RootCertStore> {
    if let Some(file) = file {
        return authorities(file);
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // The library cannot parse some old certificates of a system. The others are used.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reasons = found.errors.iter().map(|error| format!(": {error}")).collect::<String>();
        return Err(unusable(format!(
            "this system trusts no authority{reasons}; name one by tls_ca"
        )));
    }
    Ok(roots)
}

/// Returns the authorities of a file.
pub(crate) fn authorities(file: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

/// Returns the certificates of a file, at least one.
pub(crate) fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let cannot = |error| of_file(file, "certificate", &error);
    let found = CertificateDer::pem_file_iter(file).map_err(cannot)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    if found.is_empty() {
        return Err(unusable(format!("{} holds no certificate", file.display())));
    }
    Ok(found)
}

/// Returns the error for a file that cannot be read, or holds no such `thing`.
fn of_file(file: &Path, thing: &str, error: &pem::Error) -> io::Error {
    let file = file.display();
    if let pem::Error::Io(cause) = error {
        unusable(format!("{file}: {cause}"))
    } else {
        unusable(format!("{file} holds no {thing}: {error}"))
    }
}

/// Returns the error for options that cannot be used, with this reason.
pub(crate) fn unusable(reason: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason.to_string())
}
