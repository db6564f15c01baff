//! Tests that every error message is one sentence that a user can act on.

use std::time::Duration;

use crate::support::{Rig, TARGET, initiator, soon};
use iscsi_initiator::{Error, ErrorKind, Fault, Options, Sessions};
use iscsi_session::Timeouts;
use iscsi_testkit::config::Chap;
use iscsi_testkit::scsi::{LunForm, Sense};
use iscsi_testkit::target::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn refusal(url: &str) -> Error {
    refusal_with(url, Options::default()).await
}

async fn refusal_with(url: &str, options: Options) -> Error {
    let session = match soon(initiator(options).connect(url)).await {
        Ok(session) => session,
        Err(error) => return error,
    };
    soon(session.disk_without_reconnect())
        .await
        .err()
        .unwrap_or_else(|| panic!("{url} is accepted"))
}

/// Asserts that the message and its advice contain all of `parts`, in one line, and no password.
fn assert_says(error: &Error, parts: &[&str], fault: Fault) {
    let advice = error.advice().map_or_else(String::new, |advice| format!("; {advice}"));
    let message = format!("{error}{advice}");
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert!(!message.contains('\n') && !message.contains("hunter"), "{message}");
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    assert_eq!(error.fault(), fault, "{message}");
}

#[tokio::test]
async fn wrong_password() {
    let rig = Rig::start(512, 64, |config| {
        config.chap = Some(Chap::new("me", "the right hunter"));
    })
    .await;
    let portal = rig.server.address();
    let error = refusal(&format!("iscsi://me:wrong-hunter-x@{portal}/{TARGET}/0")).await;
    assert_says(&error, &["refused the user \"me\" or the password"], Fault::Caller);
    let error = refusal(&format!("iscsi://{portal}/{TARGET}/0")).await;
    assert_says(&error, &["wants a user name and a password", "iscsi://USER@HOST"], Fault::Caller);
}

#[tokio::test]
async fn a_target_that_cannot_prove_itself() {
    let rig = Rig::start(512, 64, |config| {
        config.chap = Some(Chap::new("me", "the right hunter").mutual("you", "another hunter"));
    })
    .await;
    let portal = rig.server.address();
    let error = refusal(&format!(
        "iscsi://me:the%20right%20hunter@{portal}/{TARGET}/0?target_password=not-that-hunter"
    ))
    .await;
    assert_says(&error, &["prove", &portal.to_string()], Fault::Caller);
}

#[tokio::test]
async fn unknown_target() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let error = refusal(&rig.url("/iqn.2026-01.org.example:other/0")).await;
    assert_says(
        &error,
        &["no target iqn.2026-01.org.example:other", "Initiator::discover"],
        Fault::Caller,
    );
}

#[tokio::test]
async fn a_target_that_is_busy() {
    let rig = Rig::start(512, 64, |config| config.login.refuse = Some((3, 1))).await;
    assert_says(&refusal(&rig.unit_url(0, "")).await, &["try again later"], Fault::Target);
}

#[tokio::test]
async fn an_initiator_that_is_not_admitted() {
    let rig = Rig::start(512, 64, |config| config.login.refuse = Some((2, 2))).await;
    let error = refusal(&rig.unit_url(0, "")).await;
    assert_says(&error, &["iqn.2026-01.org.example:host", "access list"], Fault::Caller);
}

/// All sessions of a disk find a unit by its number, whichever form of LUN the target uses.
#[tokio::test]
async fn a_unit_in_any_form() {
    for (form, number) in
        [(LunForm::Flat, 300), (LunForm::Bus, 300), (LunForm::AllFlat, 300), (LunForm::AllFlat, 1)]
    {
        let rig = Rig::start(512, 64, |config| {
            let unit = config.units.remove(&0).unwrap();
            config.units.insert(number, unit);
            config.lun_form = form;
        })
        .await;
        let url = rig.unit_url(number, "");
        let session = initiator(Options::default()).connect(&*url).await.unwrap();
        let disk = session.disk_without_reconnect().await.unwrap();
        disk.write_at(0, vec![7; 512]).await.unwrap();
        assert!(rig.disk.holds(0, &[7; 512]));
        let two = Options::default().with_sessions(Sessions::Fixed(2));
        let disk = soon(initiator(two).disk(&*url)).await.unwrap();
        assert_eq!(disk.sessions().len(), 2);
        let error = refusal(&rig.unit_url(number + 1, "")).await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    }
}

/// If the target does not list its units, the error still names the number of the unknown unit.
#[tokio::test]
async fn no_such_unit_and_no_list() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let session = initiator(Options::default()).connect(rig.unit_url(7, "")).await.unwrap();
    rig.server.with(|target| {
        for _ in 0..64 {
            target.end_next_with(Outcome::check(Sense::INVALID_LUN));
        }
    });
    let error = soon(session.disk_without_reconnect()).await.unwrap_err();
    assert!(error.to_string().contains("no logical unit 7"), "{error}");
}

#[tokio::test]
async fn no_such_unit() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let error = refusal(&rig.unit_url(7, "")).await;
    let target = error.target_url().unwrap();
    assert_eq!(*target, rig.url(&format!("/{TARGET}")), "it is what lists the units");
    assert_says(&error, &["no logical unit 7", "list its units"], Fault::Caller);
    let error = refusal(&rig.url(&format!("/{TARGET}"))).await;
    assert_says(&error, &["names no logical unit"], Fault::Caller);
}

#[tokio::test]
async fn another_serial_number() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let error = refusal(&rig.unit_url(0, "?force_usn=4711")).await;
    assert_says(&error, &["\"0001\"", "\"4711\"", "another unit"], Fault::Caller);
}

#[tokio::test]
async fn a_unit_that_is_read_only() {
    let rig = Rig::start(512, 64, |_| {}).await;
    rig.disk.set_read_only(true);
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    assert!(disk.is_write_protected());
    let error = disk.write_at(0, vec![0; 512]).await.unwrap_err();
    assert_says(&error, &["write protected"], Fault::Target);
    assert!(disk.write_zeroes(0, 512).await.is_err() && disk.discard(0, 512).await.is_err());
    assert!(disk.read_at(0, 512).await.is_ok());

    // A write that is sent directly to the unit is not checked by the disk, so the error is that of the unit.
    let error = disk.unit().write(0, vec![0; 512]).await.unwrap_err();
    assert_says(&error, &["WRITE (16) failed", "WRITE PROTECTED"], Fault::Target);
}

#[tokio::test]
async fn ranges_beyond_the_end() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let end = 64 * 512;
    for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 2), (0, end + 1)] {
        let count = usize::try_from(len).unwrap();
        for result in [
            disk.read_at(offset, count).await.map(drop),
            disk.write_at(offset, vec![0; count]).await,
            disk.write_zeroes(offset, len).await,
            disk.discard(offset, len).await,
        ] {
            assert_says(&result.unwrap_err(), &["32768 bytes"], Fault::Caller);
        }
    }
    assert!(disk.read_at(end, 0).await.unwrap().is_empty());
    disk.write_at(end, Vec::<u8>::new()).await.unwrap();
}

#[tokio::test]
async fn a_closed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    drop(listener);
    let error = refusal(&format!("iscsi://{portal}/{TARGET}/0")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    let nobody = format!("nothing listens at {portal}");
    assert_says(&error, &[&nobody, "check the port"], Fault::Network);
}

#[tokio::test]
async fn an_unknown_host() {
    let error = refusal(&format!("iscsi://no-such-host.invalid/{TARGET}/0")).await;
    assert_says(&error, &["\"no-such-host.invalid\" is not known"], Fault::Network);
}

#[tokio::test]
async fn a_target_that_accepts_and_stays_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    let options = Options::default()
        .with_timeouts(Timeouts::default().with_login(Duration::from_millis(100)));
    let error = refusal_with(&format!("iscsi://{portal}/{TARGET}/0"), options).await;
    let who = format!("{portal} did not answer in time");
    assert_says(&error, &[&who, "check that an iSCSI target listens"], Fault::Network);
}

#[tokio::test]
async fn a_host_that_speaks_something_else() {
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400"[..],
        &[0; 64],
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let portal = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 48];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(answer).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await
        });
        let error = refusal(&format!("iscsi://{portal}/{TARGET}/0")).await;
        let who = format!("{portal} does not speak iSCSI");
        assert_says(&error, &[&who], Fault::Target);
        drop(soon(server).await);
    }
}

#[tokio::test]
async fn a_host_that_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let portal = listener.local_addr().unwrap();
    tokio::spawn(async move { listener.accept().await.map(drop) });
    let error = refusal(&format!("iscsi://{portal}/{TARGET}/0")).await;
    assert_says(&error, &[&format!("lost {portal}")], Fault::Network);
}

#[tokio::test]
async fn urls_and_names() {
    let initiator = initiator(Options::default());
    let portal_only = initiator.connect("iscsi://127.0.0.1").await.unwrap_err();
    assert_says(&portal_only, &["names no target", "Initiator::discover"], Fault::Caller);
    let url = format!("iscsi://me@127.0.0.1/{TARGET}/0");
    let error = initiator.connect(url.as_str()).await.unwrap_err();
    assert_says(&error, &["user \"me\" has no password"], Fault::Caller);
    let error = iscsi_initiator::Initiator::new("host").unwrap_err();
    assert_says(&error, &["'host'", "choose another name"], Fault::Caller);
}
