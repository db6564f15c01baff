//! Tests of how lost sessions of a disk reconnect or fail to, against the test target over TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Rig, TARGET, Watched, initiator, let_pass, notes_of, soon, until, without_wait,
};
use bytes::BytesMut;
use iscsi_initiator::device::BufferPool;
use iscsi_initiator::{BackOff, Disk, Error, ErrorKind, OnRetryTimeout, Options, Sessions};
use iscsi_testkit::config::{Redirect, TargetConfig};
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::scsi::status;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::{ConnId, Outcome, Target};
use tokio::task::JoinHandle;

/// A time longer than any test waits.
const HOUR: Duration = Duration::from_secs(3600);
/// Event codes of asynchronous messages (RFC 7143 §11.9.1).
const LOGOUT: u8 = 1;
const CONNECTION_DROPPED: u8 = 2;
const SESSION_DROPPED: u8 = 3;

async fn rig(default_time2wait: u32) -> Rig {
    Rig::start(512, 4096, |config| config.keys.default_time2wait = default_time2wait).await
}

async fn open_at(url: String, patience: Duration) -> Disk {
    let options = Options::default()
        .with_sessions(Sessions::Fixed(1))
        .with_retry_timeout(patience)
        .with_advanced(without_wait());
    soon(initiator(options).disk(url)).await.unwrap()
}

async fn open(rig: &Rig, patience: Duration) -> Disk {
    open_at(rig.unit_url(0, ""), patience).await
}

async fn open_with(rig: &Rig, on_timeout: OnRetryTimeout) -> Disk {
    let options = Options::default()
        .with_sessions(Sessions::Fixed(1))
        .with_retry_timeout(HOUR)
        .with_on_retry_timeout(on_timeout)
        .with_advanced(without_wait());
    soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap()
}

fn accepted(rig: &Rig) -> usize {
    rig.server.with(|target| target.accepted())
}

fn drop_first(rig: &Rig) {
    rig.server.with(|target| target.drop_connection(ConnId(0)));
}

/// ERR-09, ASY-04, ERR-08: the times that the target names when it drops the session replace the times that
/// the login agreed on. The agreed time would be longer than the test.
#[tokio::test]
async fn asy_04_the_times_of_an_asynchronous_message_count() {
    for event in [CONNECTION_DROPPED, SESSION_DROPPED] {
        let rig = rig(3600).await;
        let disk = open(&rig, 2 * HOUR).await;
        rig.server.with(|target| target.async_message(ConnId(0), event, [0, 0, 0]));
        soon(disk.write_at(0, vec![1; 512])).await.unwrap();
        assert_eq!(disk.status().reconnects, 1);
    }
    for event in [CONNECTION_DROPPED, SESSION_DROPPED] {
        let rig = rig(0).await;
        let disk = open(&rig, Duration::from_millis(10)).await;
        rig.server.with(|target| target.async_message(ConnId(0), event, [0, 3600, 0]));
        let error = soon(disk.write_at(0, vec![1; 512])).await.unwrap_err();
        assert!(error.to_string().contains("asks to wait 3600 s"), "{error}");
        assert_eq!(accepted(&rig), 1, "no login before its time");
    }
}

/// ERR-07, LOG-14: a session that reconnects sends the ISID of the lost session, which the target then drops,
/// and a TSIH of zero.
#[tokio::test]
async fn err_07_a_session_comes_back_under_its_isid() {
    let rig = Rig::start(512, 4096, |config| {
        config.keys.default_time2wait = 0;
        config.record = true;
    })
    .await;
    let disk = open(&rig, HOUR).await;
    drop_first(&rig);
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    rig.server.with(|target| {
        let login = |id| {
            let first = |(at, pdu): &&(ConnId, Pdu)| *at == id && pdu.is(Opcode::LoginRequest);
            let (_, pdu) = target.received().iter().find(first).unwrap();
            (pdu.isid(), pdu.tsih())
        };
        assert_eq!(login(ConnId(1)), (login(ConnId(0)).0, 0));
    });
}

/// LGO-07, ASY-03, QRK-02: after a logout that the target has requested, its response determines the wait:
/// none if the logout succeeded, and otherwise the time that the response names.
#[tokio::test]
async fn lgo_07_the_times_of_a_logout_response_count() {
    for code in [0, 2, 3] {
        let rig = rig(3600).await;
        rig.server.with(|target| target.config_mut().logout_response = code);
        let disk = open(&rig, 2 * HOUR).await;
        rig.server.with(|target| target.async_message(ConnId(0), LOGOUT, [0, 0, 10]));
        until(|| disk.status().reconnects == 1).await;
        soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    }
}

/// LOG-18: a target that restarts listens before its access list and its units are ready. A refused login is
/// retried.
#[tokio::test]
async fn log_18_a_lost_session_waits_for_a_target_that_is_not_whole_yet() {
    for status in [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 6), (3, 0), (3, 1), (3, 2)] {
        let rig = rig(0).await;
        let disk = open(&rig, HOUR).await;
        rig.server.with(|target| {
            let login = &mut target.config_mut().login;
            (login.refuse, login.refuse_times) = (Some(status), 3);
        });
        drop_first(&rig);
        let write = tokio::spawn({
            let disk = disk.clone();
            async move { disk.write_at(0, vec![1; 512]).await }
        });
        while !write.is_finished() {
            let_pass(Duration::from_secs(10)).await;
        }
        write.await.unwrap().unwrap();
        assert_eq!((disk.status().reconnects, accepted(&rig)), (1, 5), "{status:?}");
    }
}

/// LOG-18: a refused password is tried a few times only, then the disk ends. The error names what ended the
/// session, and why it did not reconnect.
#[tokio::test]
async fn log_18_a_password_that_stays_refused_ends_the_disk_after_a_few_tries() {
    for on_timeout in [OnRetryTimeout::EndDisk, OnRetryTimeout::FailRequests] {
        let rig = rig(0).await;
        let disk = open_with(&rig, on_timeout).await;
        rig.server.with(|target| target.config_mut().login.refuse = Some((2, 1)));
        drop_first(&rig);
        let read = tokio::spawn(async move { disk.read_at(0, 512).await });
        while !read.is_finished() {
            let_pass(Duration::from_secs(60)).await;
        }
        let error = read.await.unwrap().unwrap_err();
        let message = error.to_string();
        assert!(error.reconnect_error().is_some(), "{error:?}");
        // If a command arrives at the closed socket, the kernel sends a reset, which may overtake the
        // close.
        let ends = ["the target closed the connection", "Connection reset by peer"];
        assert!(ends.iter().any(|end| message.contains(end)), "{message}");
        assert!(message.contains("password"), "{message}");
        assert_eq!(accepted(&rig), 1 + 7);
    }
}

/// LOG-19: a login that the target cannot take at present is retried.
#[tokio::test]
async fn log_19_a_login_that_the_target_cannot_take_now_is_tried_again() {
    let rig = rig(0).await;
    let disk = open(&rig, HOUR).await;
    rig.server.with(|target| {
        let login = &mut target.config_mut().login;
        (login.refuse, login.refuse_times) = (Some((3, 1)), 2);
    });
    drop_first(&rig);
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!(accepted(&rig), 4);
}

/// A retry timeout of `Duration::MAX` is no limit: a lost session reconnects.
#[tokio::test]
async fn a_lost_session_comes_back_to_a_disk_of_endless_patience() {
    let rig = rig(0).await;
    let disk = open(&rig, Duration::MAX).await;
    rig.server.with(|target| {
        let login = &mut target.config_mut().login;
        (login.refuse, login.refuse_times) = (Some((3, 1)), 1);
        target.end_next_with(Outcome::status(status::BUSY));
    });
    drop_first(&rig);
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!(accepted(&rig), 3);
}

#[tokio::test]
async fn what_is_waited_for_shows_while_a_session_does_not_come_back() {
    let rig = rig(0).await;
    let disk = open(&rig, HOUR).await;
    rig.server.with(|target| target.config_mut().login.refuse = Some((3, 1)));
    drop_first(&rig);
    until(|| {
        disk.status().waits.iter().any(|wait| wait.cause.to_string().contains("the last try"))
    })
    .await;
    let wait = disk.status().waits.remove(0);
    for part in ["the target closed the connection", "cannot take the login now", "up to 3600 s"] {
        assert!(wait.to_string().contains(part), "{wait}");
    }
    rig.server.with(|target| target.config_mut().login.refuse = None);
    until(|| disk.status().reconnects == 1).await;
    assert!(disk.status().waits.is_empty());
}

/// A logout, a dropped request and a dropped disk do not wait for a lost session to reconnect, if that
/// session was writing nothing.
#[tokio::test]
async fn nothing_that_ends_a_disk_waits_for_a_session_to_come_back() {
    let rig = rig(0).await;
    let disk = open(&rig, HOUR).await;
    rig.server.with(|target| target.config_mut().login.refuse = Some((3, 1)));
    drop_first(&rig);
    until(|| !disk.status().waits.is_empty()).await;
    let write = tokio::spawn({
        let disk = disk.clone();
        async move { disk.write_at(0, vec![1; 512]).await }
    });
    tokio::task::yield_now().await;
    write.abort();
    assert!(soon(write).await.is_err());
    let waiting = tokio::spawn({
        let disk = disk.clone();
        async move { disk.read_at(0, 512).await }
    });
    tokio::task::yield_now().await;
    soon(disk.logout()).await.unwrap();
    assert!(soon(waiting).await.unwrap().as_ref().is_err_and(Error::is_of_session));
    until(|| disk.status().waits.is_empty()).await;
}

/// Starts two portals of one target, each with its own server. The returned URL names the first one first.
async fn two_portals() -> (Watched, Rig, String) {
    let second = rig(0).await;
    let mut config = TargetConfig::new(TARGET, second.disk.clone());
    config.keys.default_time2wait = 0;
    let first = Watched::start(config).await;
    let (a, b) = (first.address(), second.server.address());
    (first, second, format!("iscsi://{a}/{TARGET}/0?portal={b}"))
}

/// A lost session can reconnect at another portal of the unit.
#[tokio::test]
async fn a_lost_session_comes_back_over_another_portal() {
    let (first, second, url) = two_portals().await;
    let disk = open_at(url, HOUR).await;
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!(accepted(&second), 0);
    soon(first.stop()).await;
    soon(disk.write_at(0, vec![2; 512])).await.unwrap();
    assert!(second.disk.holds(0, &[2; 512]));
    let status = disk.status();
    assert_eq!((status.reconnects, accepted(&second)), (1, 1));
    assert!(
        status.notes.iter().any(|note| note.to_string().contains("was passed over")),
        "{status}"
    );
    // The first portal is still stopped, so a session that is lost at the second portal reconnects there.
    drop_first(&second);
    soon(disk.write_at(0, vec![3; 512])).await.unwrap();
    assert_eq!(accepted(&second), 2);
    second.assert_clean();
}

/// ISI-02 (RFC 7143 §4.4.3): the portal group is part of a nexus. A login in another group does not end the
/// writes of the lost session, so other data for those blocks waits.
#[tokio::test]
async fn isi_02_a_login_in_another_portal_group_settles_nothing() {
    for (group, is_settled) in [(1, true), (2, false)] {
        let (first, second, url) = two_portals().await;
        second.server.with(|target| target.config_mut().portal_group = Some(group));
        let disk = open_at(url, HOUR).await;
        first.with(|target| target.hold());
        let lost = write(&disk, 0, 1);
        until(|| first.with(|target| target.active_tasks()) == 1).await;
        first.with(|target| {
            target.config_mut().login.refuse = Some((2, 3));
            target.drop_connection(ConnId(0));
        });
        soon(lost).await.unwrap().unwrap();
        let same = write(&disk, 0, 2);
        for block in 1..50 {
            soon(write(&disk, block, 3)).await.unwrap().unwrap();
        }
        if is_settled {
            soon(same).await.unwrap().unwrap();
        } else {
            assert!(!same.is_finished());
            assert!(second.disk.holds(0, &[1; 512]));
        }
    }
}

fn write(disk: &Disk, block: u64, byte: u8) -> JoinHandle<Result<(), Error>> {
    let disk = disk.clone();
    tokio::spawn(async move { disk.write_at(block * 512, vec![byte; 512]).await })
}

/// LOG-18: if one portal refuses the login, a lost session reconnects at another one.
#[tokio::test]
async fn log_18_a_lost_session_comes_back_at_the_portal_that_takes_it() {
    let (first, second, url) = two_portals().await;
    let disk = open_at(url, HOUR).await;
    first.with(|target| {
        target.config_mut().login.refuse = Some((2, 3));
        target.drop_connection(ConnId(0));
    });
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!([first.with(|target| target.accepted()), accepted(&second)], [2, 1]);
}

/// SPC-4 §7.8: a unit that refuses to report its identifier may report it at the next try, so the disk does
/// not end.
#[tokio::test]
async fn a_refused_question_at_a_reopening_does_not_end_the_disk() {
    const IDENTIFICATION: u8 = 0x83;
    let rig = rig(0).await;
    rig.server.with(|target| unit(target).serial = String::new());
    let disk = open(&rig, HOUR).await;
    rig.server.with(|target| unit(target).behavior.refused_pages = vec![IDENTIFICATION]);
    drop_first(&rig);
    until(|| {
        disk.status()
            .waits
            .iter()
            .any(|wait| wait.cause.to_string().contains("does not say that name"))
    })
    .await;
    rig.server.with(|target| unit(target).behavior.refused_pages.clear());
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!(disk.status().reconnects, 1);
}

fn unit(target: &mut Target) -> &mut iscsi_testkit::scsi::Unit {
    target.config_mut().units.get_mut(&0).unwrap()
}

/// Loses a session at a portal that redirects to another one. Returns how many connections each portal has
/// accepted after the session reconnected.
async fn redirected(is_permanent: bool) -> [usize; 2] {
    let to = rig(0).await;
    let mut config = TargetConfig::new(TARGET, to.disk.clone());
    config.login.redirect = Some(Redirect {
        address: to.server.address().to_string(),
        permanent: is_permanent,
        after_authentication: false,
    });
    let from = Watched::start(config).await;
    let disk = open_at(format!("iscsi://{}/{TARGET}/0", from.address()), HOUR).await;
    drop_first(&to);
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    [from.with(|target| target.accepted()), accepted(&to)]
}

/// LOG-25: if a target that has moved for good is not found at its new address, its first portal is tried
/// again.
#[tokio::test]
async fn log_25_a_target_that_has_moved_back_is_found() {
    let to = rig(0).await;
    let mut config = TargetConfig::new(TARGET, to.disk.clone());
    config.keys.default_time2wait = 0;
    let address = to.server.address().to_string();
    config.login.redirect =
        Some(Redirect { address, permanent: true, after_authentication: false });
    let from = Watched::start(config).await;
    let disk = open_at(format!("iscsi://{}/{TARGET}/0", from.address()), HOUR).await;
    from.with(|target| target.config_mut().login.redirect = None);
    to.server.with(|target| target.config_mut().login.refuse = Some((2, 3)));
    drop_first(&to);
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
    assert_eq!([from.with(|target| target.accepted()), accepted(&to)], [2, 2]);
    // After this, the disk tries its first portal first.
    from.with(|target| target.drop_connection(ConnId(1)));
    soon(disk.write_at(0, vec![2; 512])).await.unwrap();
    assert_eq!([from.with(|target| target.accepted()), accepted(&to)], [3, 2]);
}

/// LOG-25, QRK-01: later logins begin at the address to which the target has moved for good, and at the
/// portal of the URL if it has moved temporarily.
#[tokio::test]
async fn log_25_only_a_permanent_redirection_is_kept() {
    assert_eq!(redirected(true).await, [1, 2]);
    assert_eq!(redirected(false).await, [2, 2]);
}

/// The disk's requests may hold its whole budget while they wait for the session to reconnect. The queries of
/// the reconnect must not wait for them.
#[tokio::test]
async fn a_lost_session_comes_back_while_requests_hold_all_of_the_memory() {
    let rig = rig(0).await;
    let options = Options::default()
        .with_sessions(Sessions::Fixed(1))
        .with_advanced(without_wait())
        .with_max_transfer(64 << 10)
        .with_max_bytes_in_flight(256 << 10);
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    rig.server.with(|target| target.hold());
    let data = crate::support::pattern(1 << 20, 5);
    let writing = tokio::spawn({
        let (disk, data) = (disk.clone(), data.clone());
        async move { disk.write_at(0, data).await }
    });
    until(|| rig.server.with(|target| target.active_tasks()) == 4).await;
    drop_first(&rig);
    rig.server.with(|target| target.release());
    soon(writing).await.unwrap().unwrap();
    assert_eq!(disk.status().reconnects, 1);
    assert!(rig.disk.holds(0, &data));
}

/// A disk of a server: requests fail after the retry timeout, and continue when the target is back. Unflushed
/// writes may be lost by then, which each handle reports.
#[tokio::test]
async fn a_disk_outlasts_its_patience_where_it_shall() {
    for sessions in [1, 2] {
        let disk = RamDisk::new(512, 4096);
        disk.set_cache(Cache::Volatile);
        let target = || {
            let mut config = TargetConfig::new(TARGET, disk.clone());
            config.keys.default_time2wait = 0;
            Target::new(config)
        };
        // No other test uses this address, so no test takes the port while no process listens there.
        let server = Server::start_at("127.0.0.77:0", target(), Duration::ZERO).await.unwrap();
        let server = Watched::from(server);
        let address = server.address();
        let mut options = Options::default()
            .with_sessions(Sessions::Fixed(sessions))
            .with_retry_timeout(Duration::from_secs(1));
        let pause = Duration::from_millis(50);
        let advanced = without_wait().with_reconnect_pauses(BackOff::new(pause, pause));
        options =
            options.with_advanced(advanced).with_on_retry_timeout(OnRetryTimeout::FailRequests);
        let url = format!("iscsi://{address}/{TARGET}/0");
        let unit = soon(initiator(options).disk(url)).await.unwrap();
        until(|| unit.sessions().len() == sessions as usize).await;
        soon(unit.flush()).await.unwrap();
        soon(unit.write_at(0, vec![7; 512])).await.unwrap();
        server.stop().await;
        disk.lose_power();
        let all = async {
            tokio::join!(unit.read_at(0, 512), unit.write_at(512, vec![8; 512]), unit.flush())
        };
        let (read, written, flushed) = soon(all).await;
        for error in [read.unwrap_err(), written.unwrap_err(), flushed.unwrap_err()] {
            assert!(error.reconnect_error().is_some(), "{error}");
        }
        let notes = || notes_of(&unit).join("; ");
        assert!(notes().contains("requests fail until a session is back"), "{}", notes());
        assert!(soon(unit.read_at(0, 512)).await.is_err());

        let server = Server::start_at(address, target(), Duration::ZERO).await.unwrap();
        let _server = Watched::from(server);
        until(|| unit.sessions().len() == sessions as usize).await;
        assert!(notes().contains("a session is back"), "{}", notes());
        assert_eq!(soon(unit.read_at(0, 512)).await.unwrap(), vec![0; 512]);
        let error = soon(unit.flush()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnflushedWritesLost, "{error}");
        soon(unit.write_at(0, vec![9; 512])).await.unwrap();
        soon(unit.flush()).await.unwrap();
        assert_eq!(disk.read_durable(0, 512), vec![9; 512]);
    }
}

/// A buffer pool whose first call panics.
#[derive(Debug, Default)]
struct Brittle(AtomicBool);

impl BufferPool for Brittle {
    fn take(&self, len: usize) -> BytesMut {
        assert!(self.0.swap(true, Ordering::Relaxed), "no buffer is left");
        BytesMut::zeroed(len)
    }
}

/// A panic in a caller's code within a session is handled like a lost connection.
#[tokio::test]
async fn a_session_that_a_panic_ends_is_opened_anew() {
    let rig = rig(0).await;
    let disk = open(&rig, HOUR).await;
    let read = soon(disk.read_with(0, 512, Arc::new(Brittle::default()))).await.unwrap();
    assert!(rig.disk.holds(0, &read));
    assert_eq!((disk.status().reconnects, accepted(&rig)), (1, 2));
    soon(disk.logout()).await.unwrap();
}

/// After a reconnect, queries of the unit use the current session, not the session that has ended.
#[tokio::test]
async fn a_disk_that_has_come_back_is_there_for_who_asks_its_unit() {
    let rig = rig(0).await;
    let disk = open(&rig, HOUR).await;
    let before = disk.unit();
    drop_first(&rig);
    soon(disk.write_at(0, vec![7; 512])).await.unwrap();
    soon(disk.unit().test_unit_ready()).await.unwrap();
    assert!(soon(before.test_unit_ready()).await.is_err(), "that session has ended");
    rig.assert_clean();
}
