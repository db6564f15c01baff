//! Tests of exports over TLS, whose place is taken by a veil without cryptography.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_copy::device::{DeviceError, DeviceErrorKind};
use iscsi_copy::{Device, DirtyBitmap, NbdAdvice, NbdDevice, NbdError, NbdStream, NbdTls, NbdUri};
use iscsi_nbd::OptionError;
use iscsi_nbd::client::HandshakeError;
use iscsi_nbd::server::TlsPolicy;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::support::nbd::{NbdServer, Veil};
use crate::support::pattern;

const LEN: usize = 64 << 10;
/// FIXED_NEWSTYLE and NO_ZEROES; NBD_OPT_STARTTLS.
const START: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
/// NBD_OPT_ABORT.
const ABORT: &[u8] = b"IHAVEOPT\0\0\0\x02\0\0\0\0";

/// What encrypts connections, or fails to.
#[derive(Debug, Default)]
struct Provider {
    /// The host of each connection.
    hosts: Mutex<Vec<String>>,
    fails: Option<ErrorKind>,
    /// Whether nothing can be sent once a connection is encrypted.
    cuts: bool,
}

impl Provider {
    fn failing(kind: ErrorKind) -> Arc<Self> {
        Arc::new(Self { fails: Some(kind), ..Self::default() })
    }

    fn hosts(&self) -> Vec<String> {
        self.hosts.lock().unwrap().clone()
    }
}

impl NbdTls for Provider {
    fn secure<'a>(
        &'a self,
        mut stream: TcpStream,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn NbdStream>>> + Send + 'a>> {
        Box::pin(async move {
            self.hosts.lock().unwrap().push(host.to_owned());
            if self.cuts {
                stream.shutdown().await?;
            }
            match self.fails {
                Some(kind) => Err(io::Error::new(kind, "the words of TLS")),
                None => Ok(Box::new(Veil::over(stream)) as Box<dyn NbdStream>),
            }
        })
    }
}

fn serve(policy: TlsPolicy) -> NbdServer {
    NbdServer::start_with_tls(policy, pattern(LEN), false)
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), work).await.expect("it waits for ever")
}

async fn open(uri: NbdUri, provider: &Arc<Provider>) -> Result<NbdDevice, NbdError> {
    let provider = Arc::clone(provider);
    soon(NbdDevice::open(&uri.with_tls(provider))).await
}

async fn assert_reads(device: &NbdDevice) {
    let read = soon(device.read_into(512, BytesMut::zeroed(512))).await.unwrap();
    assert_eq!(read, pattern(LEN)[512..1024]);
}

/// Waits until clients have sent these bytes in clear text.
async fn until_sent(server: &NbdServer, len: usize) {
    soon(async {
        while server.lock().tls.clear.len() < len {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_export_is_named_read_and_written_behind_the_veil_only() {
    for policy in [TlsPolicy::Allow, TlsPolicy::Require] {
        let (server, provider) = (serve(policy), Arc::default());
        let device = open(server.uri(""), &provider).await.unwrap();
        assert_eq!(device.capacity(), LEN as u64);
        assert_reads(&device).await;
        soon(device.write_at(1024, vec![Bytes::from(vec![7; 512])])).await.unwrap();
        soon(device.flush()).await.unwrap();
        assert_eq!(server.lock().medium[1024..1536], [7; 512]);
        assert_eq!(server.lock().tls.clear, START);
        assert_eq!((server.lock().clients, provider.hosts().len()), (1, 1));
    }
}

#[tokio::test]
async fn each_connection_is_encrypted_for_the_host_of_the_uri() {
    let server = NbdServer::start_with_tls(TlsPolicy::Allow, pattern(LEN), true);
    let provider = Arc::default();
    let uri = server.uri("").to_string().replace("127.0.0.1", "localhost");
    let device = open(uri.parse().unwrap(), &provider).await.unwrap();
    assert_reads(&device).await;
    let clients = server.lock().clients;
    assert!(clients > 1, "the server permits several");
    assert_eq!(provider.hosts(), vec!["localhost"; clients]);
    assert_eq!(server.lock().tls.clear, START.repeat(clients));
}

#[tokio::test]
async fn a_connection_that_is_made_again_is_encrypted_again() {
    let (server, provider) = (serve(TlsPolicy::Allow), Arc::default());
    let device = open(server.uri(""), &provider).await.unwrap();
    for connections in 2..4 {
        server.lock().lives = Some(0);
        assert_reads(&device).await;
        assert_eq!((server.lock().clients, provider.hosts().len()), (connections, connections));
    }
    assert_eq!(server.lock().tls.clear, START.repeat(3));
}

/// Time does not change what these errors say, so the server is asked once.
#[tokio::test]
async fn a_server_that_is_not_trusted_is_not_waited_for() {
    for (kind, device_kind, advice) in [
        (ErrorKind::InvalidData, DeviceErrorKind::Denied, NbdAdvice::CheckCertificate),
        (ErrorKind::InvalidInput, DeviceErrorKind::InvalidInput, NbdAdvice::CheckTlsOptions),
    ] {
        let (server, provider) = (serve(TlsPolicy::Require), Provider::failing(kind));
        let error = open(server.uri("open_timeout=50"), &provider).await.unwrap_err();
        let is_not_trusted = matches!(error, NbdError::NotTrusted { .. });
        assert_eq!(is_not_trusted, kind == ErrorKind::InvalidData, "{error:?}");
        assert_eq!(matches!(error, NbdError::TlsOptions(_)), !is_not_trusted, "{error:?}");
        assert!(error.to_string().ends_with(": the words of TLS"), "{error}");
        assert_eq!((provider.hosts().len(), error.advice()), (1, Some(advice)));
        assert_eq!(DeviceError::from(error).kind(), device_kind);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_under_tls_may_be_made_later() {
    let (server, provider) =
        (serve(TlsPolicy::Require), Provider::failing(ErrorKind::ConnectionReset));
    let error = open(server.uri(""), &provider).await.unwrap_err();
    assert!(matches!(error, NbdError::Connect { .. }), "{error:?}");
    assert_eq!(provider.hosts().len(), 1);
    let error = open(server.uri("open_timeout=1"), &provider).await.unwrap_err();
    assert!(matches!(error, NbdError::Connect { .. }), "{error:?}");
    assert!(provider.hosts().len() > 2, "the server is asked again");
}

#[tokio::test]
async fn a_program_without_tls_makes_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let uri = format!("nbds://{}/disk?open_timeout=50", listener.local_addr().unwrap());
    let error = soon(NbdDevice::open(&uri.parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, NbdError::Tls), "{error:?}");
    assert_eq!(error.advice(), Some(NbdAdvice::UseTunnel));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_server_without_tls_does_not_hear_the_name() {
    let (server, provider) = (serve(TlsPolicy::Off), Arc::default());
    let error = open(server.uri("open_timeout=50"), &provider).await.unwrap_err();
    let is_expected = matches!(error, NbdError::Handshake { cause: HandshakeError::NoTls, .. });
    assert!(is_expected, "{error:?}");
    assert_eq!(error.advice(), Some(NbdAdvice::ServeTls));
    let expected = [START, ABORT].concat();
    until_sent(&server, expected.len()).await;
    assert_eq!(server.lock().tls.clear, expected);
    assert!(provider.hosts().is_empty());
}

/// A server that wants another certificate does so. The client notices when it receives, or already when it sends.
#[tokio::test]
async fn a_server_that_leaves_after_the_handshake_of_tls_is_told_apart() {
    for cuts in [false, true] {
        let server = serve(TlsPolicy::Require);
        server.lock().tls.leaves = !cuts;
        let provider = Arc::new(Provider { cuts, ..Provider::default() });
        let error = open(server.uri("open_timeout=50"), &provider).await.unwrap_err();
        assert!(matches!(error, NbdError::TlsEnded { .. }), "{error:?}");
        assert_eq!(error.advice(), Some(NbdAdvice::GiveCertificate));
        assert_eq!((server.lock().clients, provider.hosts().len()), (1, 1));
        assert_eq!(DeviceError::from(error).kind(), DeviceErrorKind::Denied);
    }
}

#[tokio::test]
async fn a_server_that_ends_the_handshake_of_tls_is_not_waited_for() {
    let (server, provider) =
        (serve(TlsPolicy::Require), Provider::failing(ErrorKind::ConnectionAborted));
    let error = open(server.uri("open_timeout=50"), &provider).await.unwrap_err();
    assert!(matches!(error, NbdError::TlsEnded { .. }), "{error:?}");
    assert_eq!(provider.hosts().len(), 1);
}

#[tokio::test]
async fn a_server_that_requires_tls_says_so() {
    let server = serve(TlsPolicy::Require);
    let uri = server.uri("open_timeout=50").to_string().replace("nbds://", "nbd://");
    let provider = Arc::default();
    let error = open(uri.parse().unwrap(), &provider).await.unwrap_err();
    let NbdError::Handshake { cause: HandshakeError::Refused { error: reason, .. }, .. } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(*reason, OptionError::TlsRequired);
    assert_eq!(error.advice(), Some(NbdAdvice::UseTls));
    assert!(provider.hosts().is_empty(), "clear text was asked for");
}

#[tokio::test]
async fn a_dirty_bitmap_is_read_over_tls() {
    let (server, provider) = (serve(TlsPolicy::Require), Arc::<Provider>::default());
    server.lock().export.contexts.push("qemu:dirty-bitmap:b0".to_owned());
    let named = format!("{} qemu:dirty-bitmap:b0", server.uri(""));
    let bitmap: DirtyBitmap = named.parse().unwrap();
    let error = soon(bitmap.ranges()).await.unwrap_err();
    assert!(matches!(error, NbdError::Tls), "{error:?}");
    let uri = bitmap.uri().clone().with_tls(Arc::<Provider>::clone(&provider));
    let marked = soon(bitmap.with_uri(uri).ranges()).await.unwrap();
    assert_eq!(marked, (0..LEN as u64).into());
    assert_eq!(server.lock().tls.clear, START);
    assert_eq!(provider.hosts(), ["127.0.0.1"]);
}
