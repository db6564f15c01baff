//! Tests of redirections: which are followed, and what is reported of them.

use std::error::Error as _;
use std::net::SocketAddr;
use std::time::Duration;

use iscsi_initiator::{Advice, Error, ErrorKind, Fault, Options, Redirects};
use iscsi_session::LoginError;
use iscsi_testkit::config::{Chap, Redirect, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

use crate::support::{TARGET, Watched, initiator, notes_of, soon, without_wait};

/// A portal that redirects, and the portal to which it redirects.
struct Pair {
    from: Watched,
    to: Watched,
}

async fn at(host: &str, config: TargetConfig) -> Watched {
    let server = Server::start_at((host, 0), Target::new(config), Duration::ZERO).await;
    server.unwrap().into()
}

impl Pair {
    /// Starts both portals: the second one at `host`, the first one at 127.0.0.1.
    async fn start(host: &str, permanent: bool, change: impl Fn(&mut TargetConfig)) -> Self {
        let mut config = TargetConfig::new(TARGET, RamDisk::new(512, 64));
        change(&mut config);
        let to = at(host, config.clone()).await;
        config.login.redirect = Some(Redirect {
            address: to.address().to_string(),
            permanent,
            after_authentication: false,
        });
        let from = at("127.0.0.1", config).await;
        Self { from, to }
    }

    fn url(&self, user: &str, options: &str) -> String {
        format!("iscsi://{user}{}/{TARGET}/0{options}", self.from.address())
    }

    fn accepted(&self) -> u32 {
        u32::try_from(self.to.with(|target| target.accepted())).unwrap()
    }
}

fn refused(error: &Error, to: SocketAddr) {
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert_eq!((error.kind(), error.fault()), (ErrorKind::Authentication, Fault::Target));
    let text = error.to_string();
    assert!(text.contains("127.0.0.1") && text.contains(&to.to_string()), "{text}");
}

/// LOG-24: if the target need not prove its identity, no redirection to another host is followed, so that
/// credentials and data do not go there.
#[tokio::test]
async fn log_24_another_host_is_gone_to_only_if_it_proves_itself_or_that_is_allowed() {
    let secret = |config: &mut TargetConfig| {
        let chap = Chap::new("me", "hunter2hunter2");
        config.chap = Some(chap.mutual("you", "hunter3hunter3"));
    };
    let pair = Pair::start("127.0.0.2", false, secret).await;
    let (one_way, mutual) = ("me:hunter2hunter2@", "target_password=hunter3hunter3");
    let connect = |options: String| {
        let url = pair.url(one_way, &options);
        async move { soon(initiator(Options::default()).connect(url)).await }
    };
    for options in ["", "?redirects=same-host", "?redirects=never"] {
        refused(&connect(options.to_owned()).await.unwrap_err(), pair.to.address());
    }
    let never = connect(format!("?redirects=never&{mutual}")).await.unwrap_err();
    refused(&never, pair.to.address());
    assert_eq!(pair.accepted(), 0, "nothing went to the other host");

    for options in ["?redirects=any".to_owned(), format!("?{mutual}")] {
        let session = connect(options).await.unwrap();
        assert_eq!(session.portal().unwrap().to_string(), pair.to.address().to_string());
    }
    let options = Options::default().with_redirects(Redirects::Any);
    assert!(soon(initiator(options).connect(pair.url(one_way, ""))).await.is_ok());
}

/// LOG-24: a host that does not know the target's secret fails at the login.
#[tokio::test]
async fn log_24_the_host_behind_a_redirection_must_prove_itself_as_well() {
    let one_way = |config: &mut TargetConfig| {
        config.chap = Some(Chap::new("me", "hunter2hunter2"));
    };
    let pair = Pair::start("127.0.0.2", false, one_way).await;
    let url = pair.url("me:hunter2hunter2@", "?target_password=hunter3hunter3");
    let error = soon(initiator(Options::default()).connect(url)).await.unwrap_err();
    assert!(error.source().is_some_and(|cause| cause.is::<LoginError>()), "{error}");
    assert_eq!(pair.accepted(), 1);
}

/// LOG-24: a redirection to another port of the same host is followed, unless no redirection is followed.
#[tokio::test]
async fn log_24_another_port_is_followed_unless_none_is() {
    let pair = Pair::start("127.0.0.1", false, |_| {}).await;
    let connect =
        async |options| soon(initiator(Options::default()).connect(pair.url("", options))).await;
    assert!(connect("").await.is_ok());
    refused(&connect("?redirects=never").await.unwrap_err(), pair.to.address());
}

/// After a redirection to another host, temporary or permanent, a disk reports the portal to which its sessions
/// are connected, and a note names it. A redirection within the host gives no note.
#[tokio::test]
async fn a_disk_tells_of_another_host() {
    for permanent in [false, true] {
        let pair = Pair::start("127.0.0.2", permanent, |_| {}).await;
        let url = pair.url("", "?redirects=any");
        let disk = soon(initiator(Options::default()).disk(url)).await.unwrap();
        let to = pair.to.address();
        assert!(disk.stats().sessions.iter().all(|session| session.portal == to.to_string()));
        let note = format!("the target at 127.0.0.1 sends the login on to another host: {to}");
        assert_eq!(notes_of(&disk), [note]);
    }
    let same = Pair::start("127.0.0.1", false, |_| {}).await;
    let disk = soon(initiator(Options::default()).disk(same.url("", ""))).await.unwrap();
    assert!(notes_of(&disk).is_empty());
}

/// LOG-25, QRK-01: if the target redirects the login of a reconnect to a host that is not allowed, the
/// session does not reconnect there.
#[tokio::test]
async fn log_25_a_redirection_is_judged_when_a_session_comes_back() {
    let pair = Pair::start("127.0.0.2", false, |config| config.keys.default_time2wait = 0).await;
    let redirect = pair.from.with(|target| target.config_mut().login.redirect.take());
    // The second try to reconnect would be after the retry timeout, so only the first one is made.
    let options = Options::default()
        .with_retry_timeout(Duration::from_millis(400))
        .with_advanced(without_wait());
    let disk = soon(initiator(options).disk(pair.url("", ""))).await.unwrap();
    pair.from.with(|target| {
        target.config_mut().login.redirect = redirect;
        target.drop_connection(iscsi_testkit::target::ConnId(0));
    });
    let error = soon(disk.read_at(0, 512)).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::AllowRedirect), "{error}");
    assert_eq!(pair.accepted(), 0);
}
