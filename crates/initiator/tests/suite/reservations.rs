//! Tests of disks with a reservation key: which sessions are registered, and what happens to a disk that is
//! fenced off.

use std::time::Duration;

use crate::support::{Rig, TARGET, Watched, initiator, let_pass, notes_of, soon, until};
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::scsi::{ReservationKey, ReservationType};
use iscsi_initiator::{Advice, Disk, Error, ErrorKind, Options, Preempt, Session, Sessions};
use iscsi_pdu::scsi::reservation::PersistentReserveOut;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::fault::{Effect, Fault, Trigger};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::{AccessState, PortGroup, PortGroups, Reservations, Sense, TargetPort};
use iscsi_testkit::target::{ConnId, Outcome, Target};
use tokio::time::sleep;

pub(crate) const BLOCKS: u64 = 2048;
pub(crate) const KEY: u64 = 0xa;
pub(crate) const OTHER: u64 = 0xb;
pub(crate) const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;

pub(crate) fn options(sessions: u32) -> Options {
    Options::default()
        .with_sessions(Sessions::Fixed(sessions))
        .with_reservation_key(ReservationKey(KEY))
}

pub(crate) async fn start() -> Rig {
    Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 0).await
}

pub(crate) async fn open(rig: &Rig, options: Options) -> Disk {
    soon(initiator(options).disk(rig.unit_url(0, ""))).await.unwrap()
}

pub(crate) fn reservations(rig: &Rig) -> Reservations {
    rig.server.with(|target| target.config_mut().units[&0].reservations.clone())
}

fn assert_preempted(result: Result<(), Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Preempted, "{error}");
    assert!(!error.is_transient() && error.advice() == Some(Advice::CheckOtherHosts), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::PermissionDenied);
}

/// Fences the disk off as another host. That host then reserves the unit if `reserve` is set.
fn fence(reservations: &Reservations, reserve: bool) {
    reservations.register_by_another(OTHER);
    assert!(reservations.preempt_by_another(KEY, WRITE_EXCLUSIVE_REGISTRANTS));
    if reserve {
        assert!(reservations.reserve_by_another(WRITE_EXCLUSIVE_REGISTRANTS));
    }
}

/// PRS-10: every session is registered before anything is written, and no session is registered after the
/// logout.
#[tokio::test]
async fn prs_10_each_session_is_registered_and_ends_it() {
    let rig = start().await;
    let disk = open(&rig, options(4)).await;
    let reservations = reservations(&rig);
    assert_eq!(reservations.keys(), [KEY; 4]);
    soon(disk.write_at(0, vec![1; 4096])).await.unwrap();
    let keys = soon(disk.registered_keys()).await.unwrap();
    assert_eq!(keys.keys, [ReservationKey(KEY); 4]);
    soon(disk.logout()).await.unwrap();
    assert!(reservations.keys().is_empty());
    rig.assert_clean();
}

/// PRS-10: a session is registered when its disk is opened, and not after the end of the disk. This also holds
/// for a disk over a caller's own session, and for a disk whose last handle is dropped.
#[tokio::test]
async fn prs_10_whatever_way_a_disk_is_opened_and_ended() {
    let rig = start().await;
    let reservations = reservations(&rig);
    let url = rig.unit_url(0, "?reservation_key=0x1a2b");
    let session = soon(initiator(Options::default()).connect(url.as_str())).await.unwrap();
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let again = soon(session.disk_without_reconnect()).await.unwrap();
    assert_eq!(reservations.keys(), [0x1a2b], "once for a session");
    drop(again);
    soon(disk.logout()).await.unwrap();
    assert!(reservations.keys().is_empty());

    let disk = soon(initiator(Options::default()).disk(url.as_str())).await.unwrap();
    assert_eq!(reservations.keys().first(), Some(&0x1a2b));
    drop(disk);
    until(|| reservations.keys().is_empty()).await;
    let disk = open(&rig, Options::default()).await;
    assert!(reservations.keys().is_empty());
    let reserved = soon(disk.reserve(ReservationType::WriteExclusive)).await;
    assert_eq!(reserved.as_ref().err().and_then(Error::advice), Some(Advice::GiveKey));
}

/// PRS-13: a session that is lost and reconnects is still registered, and requests continue.
#[tokio::test]
async fn prs_13_a_lost_session_comes_back_registered() {
    let rig = start().await;
    let disk = open(&rig, options(2)).await;
    let reservations = reservations(&rig);
    soon(disk.reserve(ReservationType::WriteExclusiveRegistrantsOnly)).await.unwrap();
    for _ in 0..2 {
        rig.server.with(Target::drop_connections);
        soon(disk.write_at(0, vec![7; 64 << 10])).await.unwrap();
        until(|| disk.status().sessions == 2).await;
        assert_eq!(reservations.keys(), [KEY; 2]);
    }
    rig.server.with(Target::restart);
    soon(disk.write_at(0, vec![8; 512])).await.unwrap();
    assert_eq!(reservations.holder(), Some((5, KEY)), "it outlasts a loss of power");
    until(|| disk.status().sessions == 2).await;
    soon(disk.logout()).await.unwrap();
    assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
}

/// PRS-16: registrations outlive sessions. So if sessions are lost when a disk is logged out, the disk
/// reconnects them to end their registrations, or returns an error.
#[tokio::test]
async fn prs_16_a_logout_leaves_no_registration_unsaid() {
    for comes_back in [true, false] {
        let rig = Rig::start(512, BLOCKS, |config| config.keys.default_time2wait = 2).await;
        let disk = open(&rig, options(2)).await;
        let reservations = reservations(&rig);
        soon(disk.reserve(ReservationType::WriteExclusiveRegistrantsOnly)).await.unwrap();
        rig.server.with(|target| {
            target.drop_connections();
            target.config_mut().login.refuse = Some((2, 2)).filter(|_| !comes_back);
        });
        until(|| disk.status().sessions == 0).await;
        let logout = tokio::spawn(async move { disk.logout().await });
        // A target that refuses the login may be starting, so the logout waits until the retry timeout.
        while !logout.is_finished() {
            let_pass(Duration::from_secs(10)).await;
        }
        let ended = logout.await.unwrap();
        if comes_back {
            ended.unwrap();
            assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
        } else {
            let error = ended.unwrap_err();
            assert_eq!(error.advice(), Some(Advice::PreemptKey), "{error}");
            assert!(error.to_string().contains("key 0x000000000000000a"), "{error}");
            assert_eq!(reservations.keys(), [KEY; 2]);
        }
    }
}

/// PRS-16: a session that a caller has opened is not reconnected, so the logout returns an error about its
/// registration.
#[tokio::test]
async fn prs_16_a_logout_over_a_session_that_is_lost_says_what_it_leaves() {
    let rig = start().await;
    let session = soon(initiator(options(1)).connect(rig.unit_url(0, ""))).await.unwrap();
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    rig.server.with(Target::drop_connections);
    assert!(soon(disk.read_at(0, 512)).await.is_err());
    let error = soon(disk.logout()).await.unwrap_err();
    assert_eq!(error.advice(), Some(Advice::PreemptKey), "{error:?}");
    assert_eq!(reservations(&rig).keys(), [KEY]);
}

/// PRS-13: a target that treats each session as a separate nexus, as tgt does, does not end a disk. A disk
/// that was fenced off is still excluded there.
#[tokio::test]
async fn prs_13_each_session_may_be_another_nexus() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.keys.default_time2wait = 0;
        config.units.get_mut(&0).unwrap().behavior.nexus_per_session = true;
    })
    .await;
    let disk = open(&rig, options(1)).await;
    let reservations = reservations(&rig);
    rig.server.with(Target::drop_connections);
    soon(disk.write_at(0, vec![7; 4096])).await.unwrap();
    assert_eq!(reservations.keys(), [KEY; 2], "the old one is nobody's");
    rig.server.with(|target| {
        target.drop_connections();
        fence(&reservations, false);
    });
    assert_preempted(soon(disk.write_at(0, vec![8; 4096])).await);
    assert_eq!(reservations.keys(), [OTHER]);
    assert!(rig.disk.holds(0, &[7; 4096]));
}

/// PRS-11: a disk that is fenced off receives the report of that at its next command. It sends nothing after
/// the report, whether or not the unit would accept it.
#[tokio::test]
async fn prs_11_a_disk_that_is_fenced_off_ends() {
    for reserve in [false, true] {
        let rig = start().await;
        let disk = open(&rig, options(3)).await;
        let reservations = reservations(&rig);
        soon(disk.write_at(0, vec![1; 4096])).await.unwrap();
        fence(&reservations, reserve);
        assert_preempted(soon(disk.write_at(0, vec![2; 4096])).await);
        assert_preempted(soon(disk.flush()).await);
        assert_preempted(soon(disk.read_at(0, 512)).await.map(drop));
        assert_eq!(reservations.keys(), [OTHER], "it does not come back");
        assert!(rig.disk.holds(0, &[1; 4096]), "nothing was written");
        soon(disk.logout()).await.unwrap();
        assert_eq!(reservations.keys(), [OTHER]);
        rig.assert_clean();
    }
}

/// PRS-11: if all sessions are lost while the disk is fenced off, the disk receives no report. It finds out
/// when the sessions reconnect.
#[tokio::test]
async fn prs_11_a_disk_that_was_away_finds_out() {
    let rig = start().await;
    let disk = open(&rig, options(2)).await;
    let reservations = reservations(&rig);
    soon(disk.write_at(0, vec![1; 4096])).await.unwrap();
    rig.server.with(|target| {
        target.drop_connections();
        fence(&reservations, false);
    });
    assert_preempted(soon(disk.write_at(0, vec![2; 4096])).await);
    assert_preempted(soon(disk.read_at(0, 512)).await.map(drop));
    assert!(rig.disk.holds(0, &[1; 4096]), "nothing was written");
    assert_eq!(reservations.keys(), [OTHER]);
    // To use the unit again, the caller must open the disk again.
    let disk = open(&rig, options(1)).await;
    soon(disk.write_at(0, vec![3; 4096])).await.unwrap();
    assert_eq!(reservations.keys(), [OTHER, KEY]);
}

/// PRS-11: if one session is lost while the disk is fenced off, and the others are idle, no session is
/// registered again.
#[tokio::test]
async fn prs_11_no_session_of_several_is_registered_again() {
    let rig = start().await;
    let disk = open(&rig, options(3)).await;
    let reservations = reservations(&rig);
    rig.server.with(|target| {
        target.drop_connection(ConnId(1));
        fence(&reservations, true);
    });
    until(|| notes_of(&disk).iter().any(|note| note.contains("did not come back"))).await;
    assert_preempted(soon(disk.write_at(0, vec![2; 4096])).await);
    assert_eq!(reservations.keys(), [OTHER]);
    assert!(rig.disk.holds(0, &[0; 4096]));
}

/// PRS-14: a conflict with another host's reservation is reported as a conflict, not as a fence.
#[tokio::test]
async fn prs_14_a_conflict_is_told_from_a_fence() {
    let rig = start().await;
    let disk = open(&rig, options(1)).await;
    let reservations = reservations(&rig);
    reservations.register_by_another(OTHER);
    assert!(reservations.reserve_by_another(1), "write exclusive, for one nexus");
    let error = soon(disk.write_at(0, vec![2; 4096])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReservationConflict, "{error}");
    assert!(soon(disk.read_at(0, 512)).await.is_ok());
    let other = ReservationKey(OTHER);
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    soon(disk.preempt(other, kind, Preempt::AbortCommands)).await.unwrap();
    soon(disk.write_at(0, vec![2; 4096])).await.unwrap();
    assert_eq!(soon(disk.reservation()).await.unwrap().reservation.unwrap().reservation_type, kind);
    soon(disk.release(kind)).await.unwrap();
    assert_eq!(reservations.holder(), None);
    // The nexus receives no report, so only the conflict shows that the disk is fenced off.
    fence(&reservations, true);
    let registrant = reservations.registrations();
    assert_eq!(registrant.len(), 1);
    rig.server.with(|target| target.drop_connection(ConnId(0)));
    assert_preempted(soon(disk.write_at(0, vec![3; 4096])).await);
}

/// PRS-14: a disk with one session that receives no report that it is fenced off queries its registration after
/// a conflict, and so finds out.
#[tokio::test]
async fn prs_14_a_conflict_over_the_only_session_shows_the_fence() {
    let rig = start().await;
    let disk = open(&rig, options(1)).await;
    soon(disk.write_at(0, vec![1; 4096])).await.unwrap();
    let reservations = reservations(&rig);
    fence(&reservations, true);
    reservations.drop_attentions();
    assert_preempted(soon(disk.write_at(0, vec![2; 4096])).await);
    assert!(rig.disk.holds(0, &[1; 4096]));
}

/// PRS-15: a unit without persistent reservations is reported immediately.
#[tokio::test]
async fn prs_15_a_unit_without_reservations() {
    let rig = Rig::start(512, BLOCKS, |config| {
        config.units.get_mut(&0).unwrap().behavior.refused = vec![0x5e, 0x5f];
    })
    .await;
    let error = soon(initiator(options(1)).disk(rig.unit_url(0, ""))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let expected = "persistent reservations, which a disk with a reservation key needs";
    assert!(error.to_string().contains(expected), "{error}");
    for key in ["0", "0x0", "12", "0x11112222333344445"] {
        let url = rig.unit_url(0, &format!("?reservation_key={key}"));
        let error = soon(initiator(Options::default()).disk(url)).await.unwrap_err();
        assert!(
            error.to_string().contains("reservation_key must be a key other than 0"),
            "{error}"
        );
    }
}

/// Starts two ports of one array, in separate groups.
async fn two_groups() -> ([Watched; 2], PortGroups, Reservations) {
    let mut config = TargetConfig::new(TARGET, RamDisk::new(512, BLOCKS));
    config.keys.default_time2wait = 0;
    let groups = [1, 2].map(|id| PortGroup::new(id, [id]));
    let groups = PortGroups::new(groups);
    let reservations = config.units[&0].reservations.clone();
    let port = |id| {
        let mut config = config.clone().with_port(TargetPort::new(groups.clone(), id));
        config.portal_group = Some(id);
        Watched::start(config)
    };
    let ports = [port(1).await, port(2).await];
    (ports, groups, reservations)
}

/// Starts two ports of one array.
async fn two_ports() -> ([Watched; 2], Reservations, RamDisk) {
    let disk = RamDisk::new(512, BLOCKS);
    let mut config = TargetConfig::new(TARGET, disk.clone());
    config.keys.default_time2wait = 0;
    let groups = PortGroups::new([PortGroup::new(1, [1, 2])]);
    let reservations = config.units[&0].reservations.clone();
    let port = |port| {
        let port = TargetPort::new(groups.clone(), port);
        Watched::start(config.clone().with_port(port))
    };
    ([port(1).await, port(2).await], reservations, disk)
}

/// PRS-17: if the unit is reserved, a session that is not needed ends its registration, unless the
/// reservation would end with it. In that case the registration ends with the disk.
#[tokio::test]
async fn prs_17_sessions_that_move_leave_no_registration() {
    for kind in [
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
    ] {
        let (ports, groups, reservations) = two_groups().await;
        let [first, second] = ports.each_ref().map(|port| port.address());
        let url = format!("iscsi://{first}/{TARGET}/0?portal={second}");
        let disk = soon(initiator(options(4)).disk(url)).await.unwrap();
        let at = |port: &Watched| {
            let port = port.address().port();
            let sessions = disk.sessions();
            let portals = sessions.iter().filter_map(|session| session.portal());
            portals.filter(|portal| portal.port == port).count()
        };
        until(|| disk.sessions().len() == 4).await;
        // The newest session at a port is closed first, so the reservation is made over that session.
        let sessions = disk.sessions();
        let is_first =
            |session: &&Session| session.portal().is_some_and(|portal| portal.port == first.port());
        let holder = sessions.iter().rfind(is_first).unwrap().logical_unit(Lun::ZERO);
        let key = ReservationKey(KEY);
        let reserve = PersistentReserveOut::Reserve { key, reservation_type: kind };
        soon(holder.persistent_reserve_out(&reserve)).await.unwrap();
        drop((holder, sessions));
        for good in [1, 0] {
            groups.set_state(good as u16 + 1, AccessState::ActiveOptimized);
            groups.set_state(2 - good as u16, AccessState::ActiveNonOptimized);
            soon(async {
                while (at(&ports[good]), at(&ports[1 - good])) != (3, 1) {
                    disk.write_at(0, vec![1; 4096]).await.unwrap();
                    sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            assert!(reservations.holder().is_some());
            until(|| reservations.keys().len() <= 5).await;
        }
        soon(disk.logout()).await.unwrap();
        assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));
    }
}

/// PRS-12: a session that reconnects through another port is another nexus. It is registered only while the
/// disk is registered.
#[tokio::test]
async fn prs_12_another_port_is_another_nexus() {
    for is_fenced in [false, true] {
        let ([first, second], reservations, disk) = two_ports().await;
        let url = format!("iscsi://{}/{TARGET}/0?portal={}", first.address(), second.address());
        let opened = soon(initiator(options(1)).disk(url)).await.unwrap();
        soon(opened.write_at(0, vec![1; 4096])).await.unwrap();
        if is_fenced {
            fence(&reservations, false);
        }
        first.stop().await;
        let written = soon(opened.write_at(0, vec![2; 4096])).await;
        if is_fenced {
            assert_preempted(written);
            assert_eq!(reservations.keys(), [OTHER]);
            assert!(disk.holds(0, &[1; 4096]));
        } else {
            written.unwrap();
            let ports: Vec<_> =
                reservations.registrations().iter().map(|it| it.registrant.target_port).collect();
            assert_eq!((ports, reservations.keys()), (vec![1, 2], vec![KEY; 2]));
        }
    }
}

/// PRS-12: if the response to a registration is lost, the disk does not count as fenced off. It is still
/// registered by its first session, and further sessions join.
#[tokio::test]
async fn prs_12_a_registration_without_an_answer_is_no_fence() {
    // Number of the command of the second session whose response is lost. The first run determines it.
    let mut lost = None;
    for _ in 0..2 {
        let rig = start().await;
        if let Some(number) = lost {
            let register = Trigger::Receiving(Some(Opcode::ScsiCommand), number);
            let fault = Fault::new(register, Effect::Close).on_connection(1);
            rig.server.with(|target| target.config_mut().faults.push(fault));
        }
        let disk = open(&rig, options(3)).await;
        let others = if lost.is_some() { 1 } else { 2 };
        until(|| disk.status().sessions == 1 + others).await;
        soon(disk.write_at(0, vec![2; 4096])).await.unwrap();
        assert_eq!(reservations(&rig).keys(), vec![KEY; 1 + others as usize]);
        let commands = rig.server.with(|target| target.commands().to_vec());
        let mut of_second = commands.iter().filter(|it| it.connection == ConnId(1));
        let register = of_second.position(|it| it.cdb[0] == 0x5f);
        if lost.is_some() {
            assert_eq!(register, None, "it was lost");
        }
        lost = register.map(|number| u32::try_from(number).unwrap());
    }
}

/// Asserts that a release has failed, and left the reservation as it was.
fn assert_still_reserved(result: Result<(), Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReservationConflict, "{error}");
    assert!(!error.is_transient() && error.advice() == Some(Advice::ReleaseAgain), "{error}");
}

/// PRS-18: a release fails if no session is left to send it.
#[tokio::test]
async fn prs_18_a_release_without_a_session_fails() {
    let rig = start().await;
    let disk = open(&rig, options(1)).await;
    let reservations = reservations(&rig);
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    soon(disk.reserve(kind)).await.unwrap();
    rig.server.stop().await;
    until(|| disk.status().sessions == 0).await;
    assert!(soon(disk.release(kind)).await.is_err());
    assert_eq!(reservations.holder(), Some((WRITE_EXCLUSIVE_REGISTRANTS, KEY)));
}

/// PRS-18: a unit reports GOOD to a registrant that does not hold the reservation, and keeps the reservation.
/// The release fails.
#[tokio::test]
async fn prs_18_a_release_over_another_nexus_fails() {
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    for sessions in [1, 2] {
        let ([first, second], reservations, _disk) = two_ports().await;
        let url = format!("iscsi://{}/{TARGET}/0?portal={}", first.address(), second.address());
        let disk = soon(initiator(options(sessions)).disk(url)).await.unwrap();
        soon(disk.reserve(kind)).await.unwrap();
        first.stop().await;
        soon(disk.write_at(0, vec![1; 4096])).await.unwrap();
        assert_still_reserved(soon(disk.release(kind)).await);
        assert_eq!(reservations.holder(), Some((WRITE_EXCLUSIVE_REGISTRANTS, KEY)));
        // Does what the advice of the error says.
        let url = format!("iscsi://{}/{TARGET}/0", second.address());
        let by_other = options(1).with_reservation_key(ReservationKey(OTHER));
        let another = soon(initiator(by_other).disk(url)).await.unwrap();
        soon(another.preempt(ReservationKey(KEY), kind, Preempt::KeepCommands)).await.unwrap();
        soon(another.release(kind)).await.unwrap();
        assert_eq!((reservations.keys(), reservations.holder()), (vec![OTHER], None));
    }
}

/// PRS-18: a release is sent over every session, even if it fails over an earlier one, so that it reaches the
/// session that holds the reservation.
#[tokio::test]
async fn prs_18_a_release_asks_every_session() {
    let rig = start().await;
    let disk = open(&rig, options(2)).await;
    let reservations = reservations(&rig);
    let kind = ReservationType::WriteExclusiveAllRegistrants;
    soon(disk.reserve(kind)).await.unwrap();
    let refuse = || {
        let refused = Outcome::check(Sense::new(5, 0x24, 0));
        rig.server.with(|target| target.end_next_with(refused));
    };
    refuse();
    assert!(soon(disk.release(kind)).await.is_err(), "one of them was refused");
    assert_eq!(reservations.holder(), None);
    // If the reservation is not released, the error is the refusal of the unit.
    soon(disk.reserve(kind)).await.unwrap();
    refuse();
    refuse();
    let error = soon(disk.release(kind)).await.unwrap_err();
    assert!(error.sense().is_some(), "{error}");
    assert!(reservations.holder().is_some());
    // Another host's reservation does not concern the disk.
    soon(disk.release(kind)).await.unwrap();
    reservations.register_by_another(OTHER);
    assert!(reservations.reserve_by_another(WRITE_EXCLUSIVE_REGISTRANTS));
    soon(disk.release(ReservationType::WriteExclusiveRegistrantsOnly)).await.unwrap();
    assert_eq!(reservations.holder(), Some((WRITE_EXCLUSIVE_REGISTRANTS, OTHER)));
}
