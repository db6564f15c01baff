//! TLS tunnels on the hosts of the targets, as stunnel is: they decrypt what arrives for a target, and encrypt what the
//! target sends.
//!
//! Keys are random, so two runs of one seed differ in each encrypted byte, but not in the number of bytes: the trace has
//! what is decrypted, and only the lengths of what is encrypted.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, PublicKeyData as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::TLS13;
use rustls::{ServerConfig, ServerConnection};
use sha2::{Digest as _, Sha256};

use crate::rng::Rng;

/// Most bytes that arrive together.
const MAX_PIECE: usize = 24 << 10;

/// The key of all tunnels. Ed25519 signatures have a fixed length, those of ECDSA have not.
#[expect(clippy::expect_used, reason = "a panic is a violation, and the report shows it")]
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::new().expect("a certificate"));

/// A key with its certificate.
struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    pin: String,
}

impl Identity {
    fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = CertificateParams::new(Vec::new())?;
        // The default is a digest of the key, whose encoding may be a byte shorter.
        params.serial_number = Some(1.into());
        let certificate = params.self_signed(&key)?;
        let mut pin = "sha256:".to_owned();
        for byte in Sha256::digest(key.subject_public_key_info()) {
            _ = write!(pin, "{byte:02x}");
        }
        Ok(Self { certificate: certificate.der().clone(), key: key.serialize_der(), pin })
    }
}

/// Returns the option of a URL by which an initiator recognizes the tunnels.
pub(crate) fn url_option() -> String {
    format!("tls_pin={}", IDENTITY.pin)
}

/// The tunnels of an episode. They share tickets, so that further sessions resume earlier ones.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels(Arc<ServerConfig>);

impl Tunnels {
    #[expect(clippy::expect_used, reason = "a panic is a violation, and the report shows it")]
    pub(crate) fn new() -> Self {
        let Identity { certificate, key, .. } = &*IDENTITY;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&TLS13]).expect("TLS 1.3");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key);
        Self(Arc::new(config.expect("a usable key")))
    }

    /// Returns the tunnel of a new connection.
    #[expect(clippy::expect_used, reason = "a panic is a violation, and the report shows it")]
    pub(crate) fn accept(&self) -> Tunnel {
        let mut connection = ServerConnection::new(Arc::clone(&self.0)).expect("a connection");
        // The target sends only what the initiator has asked for.
        connection.set_buffer_limit(None);
        Tunnel { connection, has_answered: false, is_closed: false }
    }
}

/// The tunnel of a connection.
#[derive(Debug)]
pub(crate) struct Tunnel {
    connection: ServerConnection,
    /// Whether the target has sent anything. Messages of the tunnel itself do not count.
    pub(crate) has_answered: bool,
    is_closed: bool,
}

impl Tunnel {
    /// Decrypts what has arrived from the initiator.
    ///
    /// # Errors
    /// If a record cannot be decrypted, or bytes follow the end of the stream.
    pub(crate) fn decrypt(&mut self, mut encrypted: &[u8]) -> io::Result<Bytes> {
        let mut bytes = Vec::new();
        while !encrypted.is_empty() {
            if self.connection.read_tls(&mut encrypted)? == 0 {
                return Err(io::Error::other("bytes after the end of the stream"));
            }
            let state = self.connection.process_new_packets().map_err(io::Error::other)?;
            let begin = bytes.len();
            bytes.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.connection.reader().read_exact(&mut bytes[begin..])?;
        }
        Ok(bytes.into())
    }

    /// Encrypts what the target sends.
    ///
    /// # Errors
    /// The error by which the connection has ended before.
    pub(crate) fn encrypt(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.has_answered = true;
        self.connection.writer().write_all(bytes)
    }

    /// Tells the initiator that the target has closed the connection. Only the first call has an effect.
    pub(crate) fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.connection.send_close_notify();
        }
    }

    /// Returns the next piece of what the tunnel has to send. Records are cut anywhere.
    pub(crate) fn poll_transmit(&mut self, rng: &mut Rng) -> Option<Bytes> {
        if !self.connection.wants_write() {
            return None;
        }
        let mut piece = vec![0; piece_len(rng)];
        let count = self.connection.write_tls(&mut &mut piece[..]).ok()?;
        piece.truncate(count);
        Some(piece.into())
    }
}

/// Returns how many bytes arrive together next: mostly a part of a record, or several.
pub(crate) fn piece_len(rng: &mut Rng) -> usize {
    let scale = 1 << rng.within(1..16);
    rng.index(1..scale + 1).min(MAX_PIECE)
}
