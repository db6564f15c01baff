//! Tests of disks over TLS. The test target is behind a TLS server, as behind stunnel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

#[path = "../../initiator/tests/suite/support/layer.rs"]
mod layer;
mod tunnel;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_initiator::{
    Advanced, Disk, Error, ErrorKind, Initiator, Options, Sessions, SocketOptions,
};
use iscsi_testkit::config::{Redirect, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_tls::Rustls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use layer::Layered;
use tunnel::{Authority, Behavior, Certificate, Tunnel};

const TARGET: &str = "iqn.2026-01.org.example:disk";

/// A target, a tunnel in front of it, and the authority of its certificates.
struct Rig {
    server: Server,
    disk: RamDisk,
    tunnel: Tunnel,
    authority: Authority,
}

impl Rig {
    async fn start(behavior: Behavior) -> Self {
        let disk = RamDisk::new(512, 8192);
        let server =
            Server::start(Target::new(TargetConfig::new(TARGET, disk.clone()))).await.unwrap();
        let authority = Authority::new("first");
        let tunnel = Tunnel::start(server.address(), &authority, behavior).await;
        Self { server, disk, tunnel, authority }
    }

    fn url(&self, options: &str) -> String {
        format!("iscsis://{}/{TARGET}/0?{options}", self.tunnel.address)
    }

    /// Returns the option that names the authority.
    fn ca(&self) -> String {
        format!("tls_ca={}", self.authority.file("ca.pem").display())
    }

    async fn open(&self, options: &str) -> Result<Disk, Error> {
        open(&self.url(options), Options::default()).await
    }

    fn assert_clean(&self) {
        let violations = self.server.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

async fn open(url: &str, options: Options) -> Result<Disk, Error> {
    let options = options.with_use_environment(false).with_tls(Arc::new(Rustls::default()));
    let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap();
    soon(initiator.disk(url)).await
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the test hangs")
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

/// Writes, reads and flushes ranges that lie in records in all ways.
async fn write_and_read(rig: &Rig, disk: &Disk) {
    for (offset, len) in [(0, 512), (1023, 2), (513, 1_000_003), (5000, 16_384), (4_194_303, 1)] {
        let data = pattern(len);
        soon(disk.write_at(offset, data.clone())).await.unwrap();
        assert!(rig.disk.holds(offset, &data), "{len} bytes at {offset}");
        assert_eq!(soon(disk.read_at(offset, len)).await.unwrap(), data);
    }
    soon(disk.flush()).await.unwrap();
}

#[tokio::test]
async fn bytes_arrive_and_nothing_is_readable_on_the_wire() {
    let rig = Rig::start(Behavior::default()).await;
    let disk = rig.open(&rig.ca()).await.unwrap();
    write_and_read(&rig, &disk).await;
    let reading = soon(disk.sessions()[0].reading()).await.unwrap();
    assert!(reading.encryption().unwrap().starts_with("TLS13_"));
    soon(disk.logout()).await.unwrap();
    let wire = rig.tunnel.wire();
    assert!(wire.len() > 1_000_000);
    assert!(!wire.windows(TARGET.len()).any(|part| part == TARGET.as_bytes()));
    rig.assert_clean();
}

/// rustls takes at most 4 KiB of received bytes at a time.
#[tokio::test]
async fn a_long_certificate_is_read_to_its_end() {
    let rig =
        Rig::start(Behavior { certificate: Certificate::ManyNames, ..Behavior::default() }).await;
    let disk = rig.open(&rig.ca()).await.unwrap();
    write_and_read(&rig, &disk).await;
    soon(disk.logout()).await.unwrap();
    rig.assert_clean();
}

/// rustls reads at most 64 KiB of certificates.
#[tokio::test]
async fn certificates_without_an_end_are_refused() {
    let rig = Rig::start(Behavior { certificate: Certificate::Bomb, ..Behavior::default() }).await;
    assert_not_trusted(&rig, &rig.ca(), "HandshakePayloadTooLarge").await;
}

/// The end of a handshake that goes wrong: the peer closes the connection, sends nothing more, or repeats these bytes for ever.
#[derive(Clone, Copy)]
enum Then {
    Close,
    Nothing,
    Endless(&'static [u8]),
}

/// Starts a server that answers each connection with these bytes.
async fn answer(first: &'static [u8], then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A close with unread bytes would be a reset.
                let _ = stream.read(&mut [0; 4096]).await?;
                stream.write_all(first).await?;
                match then {
                    Then::Close => io::Result::Ok(()),
                    Then::Nothing => std::future::pending().await,
                    Then::Endless(bytes) => loop {
                        stream.write_all(&bytes.repeat(1000)).await?;
                    },
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_handshake_that_goes_wrong_is_an_error() {
    // A record with the beginning of a ServerHello, and one of a message of 16 MiB.
    const HELLO: &[u8] = &[0x16, 3, 3, 0, 100, 2, 0, 0, 96];
    const HUGE: &[u8] = &[0x16, 3, 3, 0x40, 0, 2, 0xff, 0xff, 0xff];
    let authority = Authority::new("first");
    let ca = authority.file("ca.pem");
    for (first, then) in [
        (&HELLO[..3], Then::Close),
        (HELLO, Then::Close),
        (HELLO, Then::Nothing),
        (HUGE, Then::Endless(&[0])),
        // Handshake records without a message, change_cipher_spec, and warnings.
        (&[], Then::Endless(&[0x16, 3, 3, 0, 0])),
        (&[], Then::Endless(&[0x14, 3, 3, 0, 1, 1])),
        (&[], Then::Endless(&[0x15, 3, 3, 0, 2, 1, 90])),
    ] {
        let url =
            format!("iscsis://{}/{TARGET}/0?tls_ca={}", answer(first, then).await, ca.display());
        let sockets = SocketOptions::default().with_connect_timeout(Duration::from_secs(1));
        let options = Options::default().with_advanced(Advanced::default().with_sockets(sockets));
        let error = open(&url, options).await.unwrap_err();
        let is_named = match then {
            Then::Close => error.to_string().contains("does it speak TLS there?"),
            Then::Nothing => error.kind() == ErrorKind::TimedOut,
            Then::Endless(_) => error.kind() == ErrorKind::Authentication,
        };
        assert!(is_named, "{error}");
    }
}

/// The network under TLS keeps bytes as well.
#[tokio::test]
async fn a_layer_below_is_polled_until_it_has_sent_everything() {
    let rig = Rig::start(Behavior::default()).await;
    let portal = "san.example";
    let network = Layered { portal, to: rig.tunnel.address, writes: Arc::default() };
    let options = Options::default().with_network(Arc::new(network));
    let url = rig.url(&rig.ca()).replace("127.0.0.1", portal);
    let disk = open(&url, options).await.unwrap();
    write_and_read(&rig, &disk).await;
    soon(disk.logout()).await.unwrap();
    rig.assert_clean();
}

/// The URLs that a discovery over TLS returns use TLS as well.
#[tokio::test]
async fn discovery_leads_to_tls_only() {
    let rig = Rig::start(Behavior::default()).await;
    let options = Options::default().with_use_environment(false);
    let options = options.with_tls(Arc::new(Rustls::default()));
    let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap();
    let portal = format!("iscsis://{}?{}", rig.tunnel.address, rig.ca());
    let found = soon(initiator.discover(&*portal)).await.unwrap();
    let urls = found[0].urls();
    assert!(urls.iter().all(|url| url.tls.is_some() && url.to_string().starts_with("iscsis://")));
    let disk = rig.open(&rig.ca()).await.unwrap();
    assert!(disk.sessions()[0].target_url().starts_with("iscsis://"));
    soon(disk.logout()).await.unwrap();
}

/// After a permanent redirection, a lost session reconnects at the new portal, whose certificate has its name and not its
/// address.
#[tokio::test]
async fn a_moved_portal_is_known_by_its_name() {
    let behavior = Behavior {
        certificate: Certificate::Localhost,
        cuts_after: Some(300_000),
        ..Behavior::default()
    };
    let new = Rig::start(behavior).await;
    let old = Rig::start(Behavior::default()).await;
    let address = format!("localhost:{}", new.tunnel.address.port());
    let redirect = Redirect { address, permanent: true, after_authentication: false };
    old.server.with(|target| target.config_mut().login.redirect = Some(redirect));
    let both = tempfile::NamedTempFile::new().unwrap();
    let files = [&old, &new].map(|rig| std::fs::read(rig.authority.file("ca.pem")).unwrap());
    std::fs::write(&both, files.concat()).unwrap();
    let disk = old.open(&format!("tls_ca={}", both.path().display())).await.unwrap();
    let data = pattern(1_000_003);
    soon(disk.write_at(513, data.clone())).await.unwrap();
    assert_eq!(soon(disk.read_at(513, data.len())).await.unwrap(), data);
    soon(disk.logout()).await.unwrap();
    assert!(new.tunnel.accepted.load(Ordering::Relaxed) > 1, "the session was not lost");
    assert_eq!(old.tunnel.accepted.load(Ordering::Relaxed), 1, "the old portal was asked again");
}

/// The server renews its keys again and again, and asks the initiator to do so.
#[tokio::test]
async fn keys_are_renewed_while_data_move() {
    let rig = Rig::start(Behavior { renews_keys: true, ..Behavior::default() }).await;
    let disk = rig.open(&rig.ca()).await.unwrap();
    write_and_read(&rig, &disk).await;
    soon(disk.logout()).await.unwrap();
    assert!(rig.tunnel.renewals.load(Ordering::Relaxed) > 10);
    rig.assert_clean();
}

/// The server gives two tickets for the first session, so the other two resume it.
#[tokio::test]
async fn further_sessions_resume_the_first() {
    let rig = Rig::start(Behavior::default()).await;
    let options = Options::default().with_sessions(Sessions::Fixed(3));
    let disk = open(&rig.url(&rig.ca()), options).await.unwrap();
    write_and_read(&rig, &disk).await;
    assert_eq!(disk.sessions().len(), 3);
    soon(disk.logout()).await.unwrap();
    let handshakes = rig.tunnel.handshakes.lock().unwrap().clone();
    assert_eq!(handshakes.iter().filter(|it| it.as_str() == "Full").count(), 1, "{handshakes:?}");
    rig.assert_clean();
}

/// Asserts that a disk is not opened because the peer is not trusted. The error contains `reason`.
async fn assert_not_trusted(rig: &Rig, options: &str, reason: &str) {
    let error = rig.open(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert!(error.to_string().contains(reason), "{error}");
    assert!(!error.is_transient());
    assert_eq!(rig.tunnel.reached.load(Ordering::Relaxed), 0, "the target was reached");
}

#[tokio::test]
async fn a_peer_that_does_not_prove_its_name_is_refused() {
    let rig = Rig::start(Behavior::default()).await;
    assert_not_trusted(&rig, &format!("{}&tls_name=other.example", rig.ca()), "other.example")
        .await;
    let disk = rig.open(&format!("{}&tls_name=san.example", rig.ca())).await.unwrap();
    soon(disk.logout()).await.unwrap();
}

#[tokio::test]
async fn a_peer_of_another_authority_is_refused() {
    let rig = Rig::start(Behavior::default()).await;
    let other = Authority::new("second");
    let ca = format!("tls_ca={}", other.file("ca.pem").display());
    assert_not_trusted(&rig, &ca, "no trusted authority has issued its certificate").await;
}

/// `openssl req -x509` makes such a certificate.
#[tokio::test]
async fn a_self_signed_certificate_of_an_authority_is_accepted_by_its_key() {
    let rig =
        Rig::start(Behavior { certificate: Certificate::Authority, ..Behavior::default() }).await;
    let ca = format!("tls_ca={}", rig.authority.file(Certificate::Authority.file()).display());
    assert_not_trusted(&rig, &ca, "pin its key by tls_pin instead of tls_ca").await;
    let disk = rig.open(&format!("tls_pin=sha256:{}", rig.authority.pin())).await.unwrap();
    soon(disk.logout()).await.unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let rig =
        Rig::start(Behavior { certificate: Certificate::Expired, ..Behavior::default() }).await;
    assert_not_trusted(&rig, &rig.ca(), "expired").await;
}

#[tokio::test]
async fn a_pinned_key_counts_in_place_of_authority_and_name() {
    let rig =
        Rig::start(Behavior { certificate: Certificate::Expired, ..Behavior::default() }).await;
    let wrong = "0".repeat(64);
    assert_not_trusted(&rig, &format!("tls_pin=sha256:{wrong}"), &rig.authority.pin()).await;
    let pins = format!("tls_pin=sha256:{wrong}&tls_pin=sha256:{}", rig.authority.pin());
    let disk = rig.open(&pins).await.unwrap();
    write_and_read(&rig, &disk).await;
    soon(disk.logout()).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_shown_to_a_peer_that_asks_for_one() {
    let rig = Rig::start(Behavior { asks_for_certificate: true, ..Behavior::default() }).await;
    let (certificate, key) = (rig.authority.file("client.pem"), rig.authority.file("client.key"));
    let own = format!("tls_cert={}&tls_key={}", certificate.display(), key.display());
    let disk = rig.open(&format!("{}&{own}", rig.ca())).await.unwrap();
    write_and_read(&rig, &disk).await;
    soon(disk.logout()).await.unwrap();
    let error = rig.open(&rig.ca()).await.unwrap_err();
    assert!(error.to_string().contains("by tls_cert and tls_key"), "{error}");
}

/// A stream that ends in the middle of a record, without close_notify, is a lost connection, and the disk reconnects.
#[tokio::test]
async fn a_stream_that_is_cut_off_is_reconnected() {
    let rig = Rig::start(Behavior { cuts_after: Some(300_000), ..Behavior::default() }).await;
    let disk = rig.open(&rig.ca()).await.unwrap();
    let data = pattern(1_000_003);
    soon(disk.write_at(513, data.clone())).await.unwrap();
    assert_eq!(soon(disk.read_at(513, data.len())).await.unwrap(), data);
    soon(disk.logout()).await.unwrap();
    assert!(rig.tunnel.accepted.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn a_target_without_tls_is_not_reached_in_clear() {
    let rig = Rig::start(Behavior::default()).await;
    let url = format!("iscsis://{}/{TARGET}/0?{}", rig.server.address(), rig.ca());
    let sockets = SocketOptions::default().with_connect_timeout(Duration::from_secs(1));
    let options = Options::default().with_advanced(Advanced::default().with_sockets(sockets));
    let error = open(&url, options).await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    assert_eq!(rig.server.with(|target| target.sessions()), 0);
}

#[tokio::test]
async fn options_that_cannot_be_used_are_errors_of_the_caller() {
    let rig = Rig::start(Behavior::default()).await;
    let key = rig.authority.file("client.key");
    for options in [
        "tls_ca=/no/such/file".to_owned(),
        format!("tls_ca={}", key.display()),
        format!("{}&tls_cert={}&tls_key=/no/such/file", rig.ca(), key.display()),
    ] {
        let error = rig.open(&options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("/"), "{error}");
    }
}

#[tokio::test]
async fn without_tls_in_the_program_the_url_is_an_error() {
    let rig = Rig::start(Behavior::default()).await;
    let initiator = Initiator::with_options("iqn.2026-01.org.example:host", Options::default());
    let error = soon(initiator.unwrap().disk(rig.url(&rig.ca()))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(rig.tunnel.accepted.load(Ordering::Relaxed), 0, "a connection was opened");
}
