//! A TLS server in front of a target, and a certificate authority.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData as _,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The faults of a tunnel, and what it requires of its clients. The default has no fault, and requires nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Behavior {
    pub(crate) certificate: Certificate,
    pub(crate) asks_for_certificate: bool,
    /// Whether the server renews its keys before each write, and asks the initiator to do so.
    pub(crate) renews_keys: bool,
    /// Number of bytes to the initiator after which the first connection is closed without close_notify.
    pub(crate) cuts_after: Option<usize>,
}

/// The certificate of a tunnel.
#[derive(Clone, Copy, Default)]
pub(crate) enum Certificate {
    /// It is valid for the names 127.0.0.1 and san.example.
    #[default]
    Valid,
    /// It has expired in 2020, and is otherwise valid.
    Expired,
    /// It is valid for the name localhost only.
    Localhost,
    /// It is self-signed, and may issue others (CA:TRUE).
    Authority,
    /// It has 600 more names, so that it is longer than 4 KiB.
    ManyNames,
    /// It has 600 more names, and stands in the chain twenty times: more than 64 KiB.
    Bomb,
}

/// A certificate authority, with its files and those of a server and a client in a folder.
pub(crate) struct Authority {
    folder: TempDir,
    pin: String,
}

impl Certificate {
    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Valid => "server.pem",
            Self::Expired => "expired.pem",
            Self::Localhost => "localhost.pem",
            Self::Authority => "authority.pem",
            Self::ManyNames => "many-names.pem",
            Self::Bomb => "bomb.pem",
        }
    }

    fn params(self) -> CertificateParams {
        let mut names = vec!["127.0.0.1".to_owned(), "san.example".to_owned()];
        match self {
            Self::Valid | Self::Expired | Self::Authority => {}
            Self::Localhost => names = vec!["localhost".to_owned()],
            Self::ManyNames | Self::Bomb => {
                names.extend((0..600).map(|host| format!("{host}.san.example")))
            }
        }
        let mut params = CertificateParams::new(names).unwrap();
        match self {
            Self::Expired => params.not_after = date_time_ymd(2020, 1, 1),
            Self::Authority => params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            Self::Valid | Self::Localhost | Self::ManyNames | Self::Bomb => {}
        }
        params
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, name);
        let put =
            |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        put("ca.pem", ca.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(ca, key);
        let server = KeyPair::generate().unwrap();
        for certificate in [
            Certificate::Valid,
            Certificate::Expired,
            Certificate::Localhost,
            Certificate::ManyNames,
            Certificate::Bomb,
        ] {
            let signed = certificate.params().signed_by(&server, &issuer).unwrap().pem();
            let copies = if matches!(certificate, Certificate::Bomb) { 20 } else { 1 };
            put(certificate.file(), signed.repeat(copies));
        }
        let own = Certificate::Authority;
        put(own.file(), own.params().self_signed(&server).unwrap().pem());
        put("server.key", server.serialize_pem());
        let client = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["host.example".to_owned()]).unwrap();
        put("client.pem", params.signed_by(&client, &issuer).unwrap().pem());
        put("client.key", client.serialize_pem());
        let pin = sha256(&server.subject_public_key_info());
        Self { folder, pin }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the digest of the server's public key, in hexadecimal digits.
    pub(crate) fn pin(&self) -> String {
        self.pin.clone()
    }

    fn chain(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let file = CertificateDer::pem_file_iter(self.file(name)).unwrap();
        file.map(Result::unwrap).collect()
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A TLS server that forwards the decrypted bytes to a target.
pub(crate) struct Tunnel {
    pub(crate) address: SocketAddr,
    /// Number of connections that were accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
    /// Number of connections to the target.
    pub(crate) reached: Arc<AtomicUsize>,
    /// Number of renewals of the server's keys.
    pub(crate) renewals: Arc<AtomicUsize>,
    /// The kind of each handshake.
    pub(crate) handshakes: Arc<Mutex<Vec<String>>>,
    wire: Arc<Mutex<Vec<u8>>>,
}

impl Tunnel {
    pub(crate) async fn start(
        target: SocketAddr,
        authority: &Authority,
        behavior: Behavior,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tunnel = Self {
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
            reached: Arc::default(),
            renewals: Arc::default(),
            handshakes: Arc::default(),
            wire: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config(authority, behavior)));
        let (accepted, reached) = (Arc::clone(&tunnel.accepted), Arc::clone(&tunnel.reached));
        let (renewals, handshakes) = (Arc::clone(&tunnel.renewals), Arc::clone(&tunnel.handshakes));
        let wire = Arc::clone(&tunnel.wire);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let is_first = accepted.fetch_add(1, Ordering::Relaxed) == 0;
                let cut = behavior.cuts_after.filter(|_| is_first);
                let stream = Wire { stream, seen: Arc::clone(&wire), left: cut };
                let (acceptor, reached) = (acceptor.clone(), Arc::clone(&reached));
                let (renewals, handshakes) = (Arc::clone(&renewals), Arc::clone(&handshakes));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let kind = stream.get_ref().1.handshake_kind();
                    handshakes
                        .lock()
                        .unwrap()
                        .push(kind.map_or_else(String::new, |kind| format!("{kind:?}")));
                    let target = TcpStream::connect(target).await.unwrap();
                    reached.fetch_add(1, Ordering::Relaxed);
                    // When one side has closed its connection, the other connection is closed as well.
                    drop(carry(stream, target, behavior.renews_keys, &renewals).await);
                });
            }
        });
        tunnel
    }

    /// Returns all bytes that the initiator has sent to the tunnel.
    pub(crate) fn wire(&self) -> Vec<u8> {
        self.wire.lock().unwrap().clone()
    }
}

fn config(authority: &Authority, behavior: Behavior) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if behavior.asks_for_certificate {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authority.chain("ca.pem"));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let chain = authority.chain(behavior.certificate.file());
    let key = PrivateKeyDer::from_pem_file(authority.file("server.key")).unwrap();
    builder.with_single_cert(chain, key).unwrap()
}

/// Carries bytes both ways until one side ends.
async fn carry(
    mut tls: TlsStream<Wire>,
    mut target: TcpStream,
    renews_keys: bool,
    renewals: &AtomicUsize,
) -> io::Result<()> {
    let (mut from_initiator, mut from_target) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            count = tls.read(&mut from_initiator) => match count? {
                0 => return Ok(()),
                count => target.write_all(&from_initiator[..count]).await?,
            },
            count = target.read(&mut from_target) => match count? {
                0 => return tls.shutdown().await,
                count => {
                    if renews_keys && tls.get_mut().1.refresh_traffic_keys().is_ok() {
                        renewals.fetch_add(1, Ordering::Relaxed);
                    }
                    tls.write_all(&from_target[..count]).await?;
                    tls.flush().await?;
                }
            },
        }
    }
}

/// A TCP stream that records what it has read, and may fail after a number of written bytes.
pub(crate) struct Wire {
    stream: TcpStream,
    seen: Arc<Mutex<Vec<u8>>>,
    left: Option<usize>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.seen.lock().unwrap().extend_from_slice(&buffer.filled()[before..]);
        result
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let most = self.left.unwrap_or(usize::MAX).min(bytes.len());
        if most == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let result = Pin::new(&mut self.stream).poll_write(context, &bytes[..most]);
        if let (Poll::Ready(Ok(count)), Some(left)) = (&result, &mut self.left) {
            *left -= count;
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
