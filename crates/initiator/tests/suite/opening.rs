//! Tests of targets that are not available yet when a disk is opened.

use std::time::Duration;

use iscsi_initiator::{Advice, Disk, Error, ErrorKind, Options, Sessions};
use iscsi_testkit::config::{Chap, Portal, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{Rig, TARGET, Watched, initiator, let_pass, notes_of, soon, until};

const HOUR: Duration = Duration::from_secs(3600);

fn opens(url: String, open_patience: Duration) -> JoinHandle<Result<Disk, Error>> {
    let options =
        Options::default().with_sessions(Sessions::Fixed(1)).with_open_timeout(open_patience);
    tokio::spawn(async move { initiator(options).disk(url).await })
}

/// Lets time pass until the disk is open, or has failed to open.
async fn opened(opening: JoinHandle<Result<Disk, Error>>) -> Result<Disk, Error> {
    while !opening.is_finished() {
        let_pass(Duration::from_secs(10)).await;
    }
    opening.await.unwrap()
}

/// A server and its storage may boot together, so opening a disk waits until the target listens.
#[tokio::test]
async fn a_target_that_listens_later_is_waited_for() {
    // An address that no other test uses, so that no other test gets the port meanwhile.
    let place = TcpListener::bind("127.0.0.79:0").await.unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let url = format!("iscsi://{address}/{TARGET}/0");
    let error = soon(opens(url.clone(), Duration::ZERO)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let opening = opens(url, HOUR);
    let_pass(Duration::from_secs(120)).await;
    assert!(!opening.is_finished());
    let target = Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 64)));
    let server = Watched::from(Server::start_at(address, target, Duration::ZERO).await.unwrap());
    opened(opening).await.unwrap();
    assert_eq!(server.with(|target| target.accepted()), 1);
}

/// LOG-18, LOG-19: a target that starts refuses logins that it will accept later, and a unit may appear after
/// its target. Opening a disk waits for both.
#[tokio::test]
async fn log_18_a_target_that_is_not_whole_yet_is_waited_for() {
    for status in [(2, 1), (2, 2), (2, 3), (3, 1)] {
        let rig = Rig::start(512, 64, |config| {
            (config.login.refuse, config.login.refuse_times) = (Some(status), 5);
        })
        .await;
        opened(opens(rig.unit_url(0, "?open_patience=3600"), Duration::ZERO)).await.unwrap();
        assert_eq!(rig.server.with(|target| target.accepted()), 6, "{status:?}");
    }
    let rig = Rig::start(512, 64, |_| ()).await;
    let unit = rig.server.with(|target| target.config_mut().units.remove(&0)).unwrap();
    let opening = opens(rig.unit_url(0, ""), HOUR);
    let_pass(Duration::from_secs(60)).await;
    assert!(!opening.is_finished());
    rig.server.with(|target| target.config_mut().units.insert(0, unit));
    opened(opening).await.unwrap();
}

/// When the time limit of opening has passed, the last error is returned. An error that does not pass by
/// itself is returned immediately.
#[tokio::test]
async fn the_last_error_is_told_when_the_patience_is_over() {
    let rig = Rig::start(512, 64, |config| config.login.refuse = Some((2, 3))).await;
    let error = opened(opens(rig.unit_url(0, ""), Duration::from_secs(60))).await.unwrap_err();
    assert!(error.to_string().contains("has no target"), "{error}");
    let tries = rig.server.with(|target| target.accepted());
    assert!(tries > 10, "{tries}");
    // The clock does not move, so there was no wait.
    for url in [rig.url(&format!("/{TARGET}")), rig.unit_url(0, "?force_usn=another")] {
        rig.server.with(|target| target.config_mut().login.refuse = None);
        let error = soon(opens(url, HOUR)).await.unwrap().unwrap_err();
        assert!(
            matches!(error.advice(), Some(Advice::AddLun | Advice::CheckSerialNumber)),
            "{error}"
        );
    }
}

/// A password may be wrong, and each try may count towards locking the account. So it is tried seven times at
/// most.
#[tokio::test]
async fn a_password_that_is_refused_is_tried_seven_times() {
    let rig = Rig::start(512, 64, |config| config.login.refuse = Some((2, 1))).await;
    let error = opened(opens(rig.unit_url(0, ""), HOUR)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert_eq!(rig.server.with(|target| target.accepted()), 7);
}

/// A target that starts twice refuses a password that it had accepted in between. The count of refusals then
/// starts again.
#[tokio::test]
async fn a_password_that_was_accepted_is_tried_as_often_again() {
    let rig = Rig::start(512, 64, |config| {
        (config.login.refuse, config.login.refuse_times) = (Some((2, 1)), 5);
    })
    .await;
    let unit = rig.server.with(|target| target.config_mut().units.remove(&0)).unwrap();
    let opening = opens(rig.unit_url(0, ""), HOUR);
    while rig.server.with(|target| target.accepted()) < 7 {
        let_pass(Duration::from_secs(1)).await;
    }
    // The password is refused more than seven times in total.
    rig.server.with(|target| target.config_mut().login.refuse_times = 10);
    rig.server.with(|target| target.config_mut().units.insert(0, unit));
    opened(opening).await.unwrap();
}

/// If the regular next try of a password would be after the end of the time limit, the last try is made when
/// the limit ends.
#[tokio::test]
async fn a_password_that_is_refused_late_is_tried_at_the_end_of_the_time_limit() {
    let rig = Rig::start(512, 64, |config| config.login.refuse = Some((2, 3))).await;
    let opening = opens(rig.unit_url(0, ""), HOUR);
    let_pass(HOUR * 3 / 4).await;
    let before = rig.server.with(|target| {
        target.config_mut().login.refuse = Some((2, 1));
        target.accepted()
    });
    // After the fifth refusal, the password is not tried for a quarter of the time limit.
    while rig.server.with(|target| target.accepted()) < before + 5 {
        let_pass(Duration::from_secs(1)).await;
    }
    let_pass(Duration::from_secs(1)).await;
    assert!(!opening.is_finished());
    rig.server.with(|target| target.config_mut().login.refuse = None);
    opened(opening).await.unwrap();
}

/// If the target drops a session between its login and the first responses, opening is retried.
#[tokio::test]
async fn a_session_that_ends_before_its_first_answers_is_opened_once_more() {
    let rig = Rig::start(512, 64, |_| ()).await;
    rig.server.with(|target| target.hold());
    let opening = opens(rig.unit_url(0, ""), Duration::ZERO);
    until(|| rig.server.with(|target| target.active_tasks()) > 0).await;
    rig.server.with(|target| {
        target.drop_connections();
        target.release();
    });
    soon(opening).await.unwrap().unwrap();
    assert_eq!(rig.server.with(|target| target.accepted()), 2);
}

/// tgt drops a normal session that sends SendTargets. So a separate session sends it, and the disk does not
/// depend on the result.
#[tokio::test]
async fn the_target_is_asked_for_its_portals_in_a_session_of_its_own() {
    let rig = Rig::start(512, 64, |config| config.discovery.drops_normal_sessions = true).await;
    let opening = opens(rig.unit_url(0, "?portals=auto"), Duration::ZERO);
    let disk = soon(opening).await.unwrap().unwrap();
    assert!(notes_of(&disk).is_empty(), "{}", disk.status());
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!(rig.server.with(|target| target.accepted()), 2);
}

/// The target names many more portals than exist. Only a few of them are connected to.
#[tokio::test]
async fn a_target_that_names_any_number_of_portals_is_used_at_a_few() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let here = rig.server.address();
    rig.server.with(|target| {
        let others = (0..5000).map(|at| format!("127.9.{}.{}:1,1", at / 200, at % 200 + 1));
        let addresses = [format!("{here},1")].into_iter().chain(others).collect();
        let list = Portal { name: TARGET.to_owned(), addresses };
        target.config_mut().discovery.targets = vec![list];
    });
    let disk =
        soon(opens(rig.unit_url(0, "?portals=auto"), Duration::ZERO)).await.unwrap().unwrap();
    until(|| {
        let notes = notes_of(&disk);
        notes.iter().any(|note| note.starts_with("the target names 4937 portals too many"))
    })
    .await;
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
}

/// If discovery needs CHAP as well, it uses the credentials of the URL, and the disk opens.
#[tokio::test]
async fn discovery_uses_the_credentials_of_the_url() {
    let rig = Rig::start(512, 64, |config| {
        config.chap = Some(Chap::new("me", "a long secret of sixteen"));
        if let Some(chap) = &mut config.chap {
            chap.discovery = true;
        }
    })
    .await;
    let url = rig
        .unit_url(0, "?portals=auto")
        .replace("iscsi://", "iscsi://me%a%20long%20secret%20of%20sixteen@");
    soon(opens(url, Duration::ZERO)).await.unwrap().unwrap();
}

/// Many targets require CHAP for their units and refuse it for discovery, or have other accounts for
/// discovery. Then discovery uses no credentials.
#[tokio::test]
async fn discovery_does_without_credentials_that_are_refused() {
    let rig = Rig::start(512, 64, |config| {
        config.chap = Some(Chap::new("me", "a long secret of sixteen"));
    })
    .await;
    let url = |path: &str| {
        rig.url(path).replace("iscsi://", "iscsi://me%a%20long%20secret%20of%20sixteen@")
    };
    let options = Options::default();
    let targets = soon(initiator(options.clone()).discover(url(""))).await.unwrap();
    assert_eq!(targets.len(), 1);
    let disk =
        soon(initiator(options.clone()).disk(url(&format!("/{TARGET}/0?portals=auto")))).await;
    assert!(notes_of(&disk.unwrap()).is_empty());
    // With mutual CHAP, discovery fails if the target does not prove its identity.
    let mutual = url("?target_user=target&target_password=another%20long%20secret");
    let error = soon(initiator(options).discover(mutual)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
}
