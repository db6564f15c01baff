//! Makes the configuration of rustls from the options of a URL, and encrypts connections with it.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use iscsi_initiator::transport::{Pending, Socket, Tls};
use iscsi_initiator::{TargetAddress, TlsOptions};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use crate::pinned::Pinned;
use crate::socket::TlsSocket;

/// TLS 1.3 by rustls: [`Options::with_tls`](iscsi_initiator::Options::with_tls).
///
/// Sessions with the same options share tickets, so that later sessions can resume earlier ones. When a file of the options has changed,
/// for example because a certificate was renewed, the next connection reads it again.
#[derive(Debug, Default)]
pub struct Rustls {
    configs: Mutex<HashMap<TlsOptions, Known>>,
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
            let config = self.config(options).await?;
            let socket = TlsSocket::connect(socket, config, name).await?;
            Ok(Box::new(socket) as Box<dyn Socket>)
        })
    }
}

impl Rustls {
    /// Returns the configuration for these options. Makes a new one if there is none, or if a file has changed.
    async fn config(&self, options: &TlsOptions) -> io::Result<Arc<ClientConfig>> {
        let asked = options.clone();
        let changes = blocking(move || Ok(changes(&asked))).await?;
        let known = |configs: &HashMap<TlsOptions, Known>| {
            let known = configs.get(options).filter(|known| known.changes == changes);
            known.map(|known| Arc::clone(&known.config))
        };
        if let Some(config) = known(&self.configs()) {
            return Ok(config);
        }
        let asked = options.clone();
        let config = blocking(move || make(&asked)).await?;
        let mut configs = self.configs();
        // Another session may have made the configuration meanwhile, and may have tickets already.
        if let Some(config) = known(&configs) {
            return Ok(config);
        }
        let new = Known { config: Arc::clone(&config), changes };
        configs.insert(options.clone(), new);
        Ok(config)
    }

    fn configs(&self) -> std::sync::MutexGuard<'_, HashMap<TlsOptions, Known>> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work that reads files on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Returns the modification time of each file of the options; `None` if it is not available.
fn changes(options: &TlsOptions) -> Vec<Option<SystemTime>> {
    let files = [&options.ca, &options.certificate, &options.key].into_iter().flatten();
    files.map(|file| file.metadata().and_then(|file| file.modified()).ok()).collect()
}

/// Returns the name that the peer must prove.
fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    // The zone of a link-local address (RFC 4007 §11) has a meaning on this host only.
    let host = host.split('%').next().unwrap_or_default();
    ServerName::try_from(host.to_owned())
        .map_err(|_| unusable(format!("{host:?} is no name that a certificate can have")))
}

pub(crate) fn make(options: &TlsOptions) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
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
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unusable(format!("{} holds no private key: {error}", key.display())))?;
    builder.with_client_auth_cert(chain, key).map_err(unusable)
}

/// Returns the certificates of the authorities: those of a file, or else those that the system trusts.
fn roots(file: Option<&Path>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(unusable)?;
        }
        return Ok(roots);
    }
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

/// Returns the certificates of a file, at least one.
fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let cannot = |error| unusable(format!("{} holds no certificate: {error}", file.display()));
    let found = CertificateDer::pem_file_iter(file).map_err(cannot)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    if found.is_empty() {
        return Err(unusable(format!("{} holds no certificate", file.display())));
    }
    Ok(found)
}

/// Returns the error for options that cannot be used, with this reason.
fn unusable(reason: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason.to_string())
}
