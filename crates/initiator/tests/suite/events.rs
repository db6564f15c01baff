//! Tests of the events of a disk, and of the states of its paths.

use std::time::Duration;

use crate::support::{Rig, initiator, pattern, soon, until, without_wait};
use iscsi_initiator::{Disk, DiskEvent, DiskEvents, Notice, Options, PathState, Sessions};
use iscsi_testkit::disk::Cache;
use iscsi_testkit::target::ConnId;

const HOUR: Duration = Duration::from_secs(3600);

async fn start() -> Rig {
    Rig::start(512, 4096, |config| config.keys.default_time2wait = 0).await
}

async fn open(rig: &Rig, sessions: u32) -> Disk {
    let options = Options::default()
        .with_sessions(Sessions::Fixed(sessions))
        .with_retry_timeout(HOUR)
        .with_advanced(without_wait());
    let disk = soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap();
    until(|| disk.sessions().len() == sessions as usize).await;
    disk
}

async fn next(events: &mut DiskEvents) -> DiskEvent {
    soon(events.next()).await.expect("the disk is open")
}

#[tokio::test]
async fn a_path_goes_down_with_the_cause_and_comes_up_again() {
    let rig = start().await;
    let disk = open(&rig, 1).await;
    let [open] = &disk.paths()[..] else { panic!("{:?}", disk.paths()) };
    assert!(matches!(open.state, PathState::Open), "{open}");
    assert_eq!((open.key, open.key.reopened), (disk.sessions()[0].key(), 0));
    let mut events = disk.events();
    rig.server.with(|target| {
        target.config_mut().login.refuse = Some((3, 1));
        target.drop_connection(ConnId(0));
    });
    let event = next(&mut events).await;
    let DiskEvent::PathDown { portal, key, cause: Some(cause) } = event else {
        panic!("{event:?}")
    };
    assert_eq!((&portal, key), (&open.portal, open.key));
    assert!(cause.to_string().contains("the target closed the connection"), "{cause}");
    // The status shows why the session has not reconnected, and when the next try is due.
    let reconnecting = || {
        let path = disk.paths().pop()?;
        let PathState::Reconnecting { next_try, error, .. } = path.state else { return None };
        let is_refused = error.to_string().contains("cannot take the login now");
        Some((path.portal, path.key, is_refused && next_try.is_some()))
    };
    until(|| reconnecting() == Some((portal.clone(), key, true))).await;
    rig.server.with(|target| target.config_mut().login.refuse = None);
    let event = next(&mut events).await;
    let DiskEvent::PathUp { key: again, .. } = event else { panic!("{event:?}") };
    assert_eq!((again.isid, again.reopened), (key.isid, 1));
    let [open] = &disk.paths()[..] else { panic!("{:?}", disk.paths()) };
    assert!(matches!(open.state, PathState::Open) && open.key == again, "{open}");
    assert_eq!(disk.status().reconnects, 1);
    soon(disk.logout()).await.unwrap();
    assert!(soon(events.next()).await.is_none(), "a disk that was logged out has no more events");
}

#[tokio::test]
async fn a_subscription_ends_with_the_last_handle() {
    let rig = start().await;
    let disk = open(&rig, 2).await;
    let (mut first, mut second) = (disk.events(), disk.clone().events());
    drop(disk);
    assert!(soon(first.next()).await.is_none());
    assert!(soon(second.next()).await.is_none());
}

/// SPC-4 §4.5.5, SAM-5 §5.14: a lost write is reported as an event, before any flush reports it. A reset is
/// also reported as an event.
#[tokio::test]
async fn losses_and_resets_are_events() {
    let rig = start().await;
    rig.disk.set_cache(Cache::Volatile);
    let disk = open(&rig, 1).await;
    soon(disk.write_at(0, pattern(4096, 1))).await.unwrap();
    let mut events = disk.events();
    assert_eq!(rig.disk.fail_write_back(0..8), 8);
    soon(disk.read_at(1 << 20, 512)).await.unwrap();
    let event = next(&mut events).await;
    assert!(matches!(event, DiskEvent::WritesLost), "{event:?}");
    assert!(soon(disk.flush()).await.is_err());
    rig.server.with(|target| target.reset_by_another(0));
    soon(disk.read_at(0, 512)).await.unwrap();
    let event = next(&mut events).await;
    let DiskEvent::Reset { code } = event else { panic!("{event:?}") };
    assert!(code.is_reset(), "{code}");
    // Here the flush itself receives the report of the reset. It publishes the reset and the loss.
    soon(disk.write_at(0, pattern(4096, 2))).await.unwrap();
    rig.disk.lose_power();
    assert!(soon(disk.flush()).await.is_err());
    let event = next(&mut events).await;
    assert!(matches!(event, DiskEvent::Reset { .. }), "{event:?}");
    let event = next(&mut events).await;
    assert!(matches!(event, DiskEvent::WritesLost), "{event:?}");
}

/// A disk publishes the notices that the target sends over any of its sessions.
#[tokio::test]
async fn what_the_target_announces_is_an_event() {
    /// Code of a SCSI asynchronous event (RFC 7143 §11.9.1).
    const SCSI: u8 = 0;
    let rig = start().await;
    let disk = open(&rig, 2).await;
    let mut events = disk.events();
    rig.server.with(|target| target.async_message(ConnId(1), SCSI, [0; 3]));
    let event = next(&mut events).await;
    let DiskEvent::Notice { key, notice: Notice::AsyncMessage { .. } } = event else {
        panic!("{event:?}")
    };
    assert!(disk.sessions().iter().any(|session| session.key() == key));
}
