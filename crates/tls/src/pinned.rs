//! Checks the public key of a peer (`tls_pin`).

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest, Sha256};

/// Accepts a peer if the SHA-256 digest of its public key is one of the pins. The issuer, the names and the dates of its certificate are
/// not checked. The signature of the handshake proves that the peer has the private key.
#[derive(Debug)]
pub(crate) struct Pinned {
    pins: Vec<[u8; 32]>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    pub(crate) const fn new(pins: Vec<[u8; 32]>, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { pins, algorithms }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let key = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let digest: [u8; 32] = Sha256::digest(key.as_ref()).into();
        if self.pins.contains(&digest) {
            return Ok(ServerCertVerified::assertion());
        }
        let shown: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let reason = format!("its public key is sha256:{shown}, which no tls_pin names");
        Err(CertificateError::Other(rustls::OtherError(std::sync::Arc::from(Box::<
            dyn std::error::Error + Send + Sync,
        >::from(
            reason
        ))))
        .into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
