//! Tests of the connections of NBD: the client's side and the server's side of TLS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use iscsi_initiator::TlsOptions;
use iscsi_tls::{Acceptor, Rustls, ServerFiles};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS12;
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

const HOST: &str = "san.example";

/// A certificate authority, and its files in a folder: `ca.pem`, and a certificate and a key for each name that was issued.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, name);
        fs::write(folder.path().join("ca.pem"), ca.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder, issuer: Issuer::new(ca, key) }
    }

    /// Creates an authority that has issued a certificate for [`HOST`], with its files `server.pem` and `server.key`.
    fn of_server() -> Self {
        let authority = Self::new("first");
        authority.issue("server", HOST);
        authority
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate for a host, with a new key. Returns the digest of the key.
    fn issue(&self, file: &str, host: &str) -> [u8; 32] {
        use sha2::{Digest as _, Sha256};

        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.file(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
        Sha256::digest(key.subject_public_key_info()).into()
    }

    fn server_files(&self) -> ServerFiles {
        let [certificate, key] = ["server.pem", "server.key"].map(|name| self.file(name));
        ServerFiles { certificate, key, client_ca: None }
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor::new(self.server_files()).unwrap()
    }

    /// Returns the options of a client that trusts this authority.
    fn trusted(&self) -> TlsOptions {
        let mut options = TlsOptions::default();
        options.ca = Some(self.file("ca.pem"));
        options
    }

    fn chain(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let file = CertificateDer::pem_file_iter(self.file(name)).unwrap();
        file.map(Result::unwrap).collect()
    }
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("the test hangs")
}

type Client = io::Result<client::TlsStream<DuplexStream>>;
type Server = io::Result<server::TlsStream<DuplexStream>>;

/// Connects a client to a server that has this name.
async fn meet(acceptor: &Acceptor, host: &str, options: &TlsOptions) -> (Client, Server) {
    let (near, far) = duplex(1 << 14);
    let rustls = Rustls::default();
    let connecting = rustls.connect_nbd(near, host, options);
    soon(async { tokio::join!(connecting, acceptor.accept(far)) }).await
}

/// Asserts that a client does not trust a server. The error contains `reason`.
async fn assert_not_trusted(acceptor: &Acceptor, host: &str, options: &TlsOptions, reason: &str) {
    let (client, server) = meet(acceptor, host, options).await;
    assert_refused(client.unwrap_err(), reason);
    assert_eq!(server.unwrap_err().kind(), ErrorKind::InvalidData);
}

fn assert_refused(error: io::Error, reason: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

fn pinned(key: [u8; 32]) -> TlsOptions {
    let mut options = TlsOptions::default();
    options.pins = vec![key];
    options
}

fn hex(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn bytes_go_both_ways() {
    let authority = Authority::of_server();
    let (client, server) = meet(&authority.acceptor(), HOST, &authority.trusted()).await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let sent: Vec<u8> = (0..1_000_003).map(|at| (at % 251) as u8).collect();
    let echo = async {
        let mut received = vec![0; sent.len()];
        server.read_exact(&mut received).await.unwrap();
        server.write_all(&received).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let talk = async {
        client.write_all(&sent).await.unwrap();
        client.flush().await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        received
    };
    let ((), received) = soon(async { tokio::join!(echo, talk) }).await;
    assert!(received == sent);
}

#[tokio::test]
async fn a_server_proves_its_name_by_an_authority() {
    let authority = Authority::of_server();
    let acceptor = authority.acceptor();
    let options = authority.trusted();
    assert_not_trusted(&acceptor, "other.example", &options, "other.example").await;
    assert_not_trusted(&acceptor, "127.0.0.1", &options, "127.0.0.1").await;
    let mut named = options.clone();
    named.name = Some(HOST.to_owned());
    assert!(meet(&acceptor, "127.0.0.1", &named).await.0.is_ok());
    let other = Authority::new("second");
    let reason = "no trusted authority has issued its certificate";
    assert_not_trusted(&acceptor, HOST, &other.trusted(), reason).await;
}

#[tokio::test]
async fn a_pinned_key_counts_in_place_of_authority_and_name() {
    let authority = Authority::new("first");
    let key = authority.issue("server", HOST);
    let acceptor = authority.acceptor();
    assert!(meet(&acceptor, "other.example", &pinned(key)).await.0.is_ok());
    assert_not_trusted(&acceptor, HOST, &pinned([0; 32]), &hex(key)).await;
}

#[tokio::test]
async fn a_server_that_asks_for_certificates_accepts_those_of_its_authority() {
    let (authority, other) = (Authority::of_server(), Authority::new("second"));
    authority.issue("client", "host.example");
    other.issue("client", "host.example");
    let client_ca = Some(authority.file("ca.pem"));
    let acceptor = Acceptor::new(ServerFiles { client_ca, ..authority.server_files() }).unwrap();
    let with_certificate = |of: &Authority| {
        let mut options = authority.trusted();
        options.certificate = Some(of.file("client.pem"));
        options.key = Some(of.file("client.key"));
        options
    };
    let (client, server) = meet(&acceptor, HOST, &with_certificate(&authority)).await;
    client.unwrap();
    server.unwrap();
    for (options, server_reason, client_reason) in [
        (authority.trusted(), "no certificates", "CertificateRequired"),
        (with_certificate(&other), "no trusted authority has issued", "UnknownCA"),
    ] {
        let (client, server) = meet(&acceptor, HOST, &options).await;
        assert_refused(server.unwrap_err(), server_reason);
        // In TLS 1.3 the client has nothing to wait for after its certificate.
        let error = soon(client.unwrap().read_u8()).await.unwrap_err();
        assert_refused(error, client_reason);
    }
}

#[tokio::test]
async fn a_server_takes_a_renewed_certificate_and_keeps_the_old_one_while_the_new_one_is_broken() {
    let authority = Authority::new("first");
    let old = authority.issue("server", HOST);
    let acceptor = authority.acceptor();
    // Two changes within one tick of the file system's clock would look like one.
    let change = |minute: u64| {
        let file = File::options().write(true).open(authority.file("server.pem")).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(60 * minute)).unwrap();
    };
    let assert_has = async |key| {
        let (client, server) = meet(&acceptor, HOST, &pinned(key)).await;
        client.unwrap();
        server.unwrap();
    };
    assert_has(old).await;
    let renewed = authority.issue("server", HOST);
    change(1);
    assert_has(renewed).await;
    assert_not_trusted(&acceptor, HOST, &pinned(old), &hex(renewed)).await;
    for (minute, broken) in [(2, "-----BEGIN CERT"), (3, "")] {
        fs::write(authority.file("server.pem"), broken).unwrap();
        change(minute);
        assert_has(renewed).await;
        assert_has(renewed).await;
    }
    let last = authority.issue("server", HOST);
    change(4);
    assert_has(last).await;
    // A file that has gone is no change to take.
    fs::remove_file(authority.file("server.key")).unwrap();
    assert_has(last).await;
}

#[tokio::test]
async fn a_client_reads_a_changed_authority_again() {
    let (first, second) = (Authority::of_server(), Authority::new("second"));
    second.issue("server", HOST);
    let (rustls, options) = (Rustls::default(), first.trusted());
    let connect = async |to: &Acceptor| {
        let (near, far) = duplex(1 << 14);
        let connecting = rustls.connect_nbd(near, HOST, &options);
        soon(async { tokio::join!(connecting, to.accept(far)) }).await.0
    };
    let (old, new) = (first.acceptor(), second.acceptor());
    connect(&old).await.unwrap();
    connect(&new).await.unwrap_err();
    fs::copy(second.file("ca.pem"), first.file("ca.pem")).unwrap();
    let file = File::options().write(true).open(first.file("ca.pem")).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    connect(&new).await.unwrap();
    assert_refused(connect(&old).await.unwrap_err(), "no trusted authority");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let authority = Authority::of_server();
    authority.issue("other", HOST);
    fs::write(authority.file("empty.pem"), "").unwrap();
    let files = |certificate: &str, key: &str, client_ca: Option<&str>| ServerFiles {
        certificate: authority.file(certificate),
        key: authority.file(key),
        client_ca: client_ca.map(|file| authority.file(file)),
    };
    for (files, named) in [
        (files("none.pem", "server.key", None), "none.pem"),
        (files("server.pem", "none.key", None), "none.key"),
        (files("server.pem", "server.key", Some("none.pem")), "none.pem"),
        (files("empty.pem", "server.key", None), "empty.pem holds no certificate"),
        (files("other.key", "server.key", None), "other.key holds no certificate"),
        (files("server.pem", "other.pem", None), "other.pem holds no private key"),
        (files("server.pem", "server.key", Some("empty.pem")), "empty.pem holds no certificate"),
        (files("server.pem", "other.key", None), "server.pem"),
        (files("server.pem", "other.key", None), "other.key"),
    ] {
        let error = Acceptor::new(files).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
}

#[tokio::test]
async fn options_that_cannot_be_used_are_errors_of_the_caller() {
    let authority = Authority::of_server();
    let mut half = authority.trusted();
    half.certificate = Some(authority.file("server.pem"));
    let mut missing = authority.trusted();
    missing.ca = Some(authority.file("none.pem"));
    for (host, options, reason) in [
        (HOST, half, "go together"),
        (HOST, missing, "none.pem"),
        ("no name", authority.trusted(), "\"no name\""),
    ] {
        let (near, _far) = duplex(1 << 14);
        let rustls = Rustls::default();
        let error = soon(rustls.connect_nbd(near, host, &options)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

/// Servers on hypervisors may be old.
#[tokio::test]
async fn a_server_that_has_tls_1_2_only_is_accepted() {
    let authority = Authority::of_server();
    let key = PrivateKeyDer::from_pem_file(authority.file("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS12]).unwrap().with_no_client_auth();
    let config = builder.with_single_cert(authority.chain("server.pem"), key).unwrap();
    let (near, far) = duplex(1 << 14);
    let (rustls, options) = (Rustls::default(), authority.trusted());
    let connecting = rustls.connect_nbd(near, HOST, &options);
    let accepting = TlsAcceptor::from(Arc::new(config)).accept(far);
    let (client, server) = soon(async { tokio::join!(connecting, accepting) }).await;
    let (client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(client.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    let (mut reader, mut writer) = tokio::io::split(client);
    soon(async {
        writer.write_all(b"ask").await.unwrap();
        server.read_exact(&mut [0; 3]).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        reader.read_exact(&mut [0; 6]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_server_that_ends_the_handshake_is_told_from_one_that_is_not_trusted() {
    /// A fatal alert in clear: handshake_failure (RFC 8446 §6.2).
    const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
    for (last, reason) in [(&[][..], "has closed it in the handshake"), (ALERT, "by tls_cert")] {
        let (near, mut far) = duplex(1 << 14);
        let (rustls, options) = (Rustls::default(), pinned([0; 32]));
        let connecting = rustls.connect_nbd(near, HOST, &options);
        let leaving = async move {
            far.read_exact(&mut [0; 16]).await.unwrap();
            far.write_all(last).await.unwrap();
        };
        let (client, ()) = soon(async { tokio::join!(connecting, leaving) }).await;
        let error = client.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_client_that_has_tls_1_2_only_or_none_is_refused() {
    let authority = Authority::of_server();
    let acceptor = authority.acceptor();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authority.chain("ca.pem"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS12]).unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let (near, far) = duplex(1 << 14);
    let connecting = TlsConnector::from(Arc::new(config)).connect(HOST.try_into().unwrap(), near);
    let (client, server) = soon(async { tokio::join!(connecting, acceptor.accept(far)) }).await;
    assert_refused(server.unwrap_err(), "incompatible");
    assert_refused(client.unwrap_err(), "ProtocolVersion");

    let (mut near, far) = duplex(1 << 14);
    near.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").await.unwrap();
    assert_refused(soon(acceptor.accept(far)).await.unwrap_err(), "corrupt message");
}
