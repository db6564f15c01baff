//! Tests of the tuner in whole sessions, against the test target over TCP.

use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Rig, TARGET, let_pass, pattern, soon};
use bytes::Bytes;
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::shaping::Class;
use iscsi_initiator::{Disk, Error, ErrorKind, Options, Reading, Session, Shaper};
use iscsi_initiator::{Policy, Tuning};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_tuner::{Basis, Buffer, Granted, Limiter, Limits, Rate, Sends, TcpInfo, TransferTerms};
use tokio::time::sleep;

fn tuned(change: impl FnOnce(Tuning) -> Tuning) -> Options {
    Options::default().with_tuning(change(Tuning::default()))
}

/// Starts a target that delays each response.
async fn slow(delay: Duration, change: impl FnOnce(&mut TargetConfig)) -> Rig {
    let disk = RamDisk::new(512, 8192);
    let mut config = TargetConfig::new(TARGET, disk.clone());
    change(&mut config);
    let server = Server::start_at(("127.0.0.1", 0), Target::new(config), delay).await.unwrap();
    Rig { server: server.into(), disk }
}

/// Sets all limits of the target to their minimum.
fn shrink(config: &mut TargetConfig) {
    config.keys.first_burst_length = 512;
    config.keys.max_burst_length = 512;
    config.keys.max_outstanding_r2t = 1;
    config.keys.max_recv_data_segment_length = Some(512);
    config.window = 1;
}

async fn read(session: &Session) -> Reading {
    soon(session.reading()).await.unwrap()
}

/// Writes, reads back, and asserts that the target has found no violation.
async fn assert_usable(rig: &Rig, disk: &Disk) {
    let data = pattern(100_003, 5);
    soon(disk.write_at(1000, data.clone())).await.unwrap();
    assert!(rig.disk.holds(1000, &data));
    assert_eq!(soon(disk.read_at(1000, data.len())).await.unwrap(), data);
    rig.assert_clean();
}

/// Opens a session with this tuning to a unit of 4 MiB, and checks that it works.
async fn session(rig: &Rig, change: impl FnOnce(Tuning) -> Tuning) -> Session {
    let session = rig.session(tuned(change)).await;
    assert_usable(rig, &soon(session.disk_without_reconnect()).await.unwrap()).await;
    session
}

/// Returns the main limit of the session over at least 500 ms, in which many measurements are made.
async fn foremost(session: &Session, earlier: &Reading) -> Limiter {
    const LONG: Duration = Duration::from_millis(500);
    soon(async {
        loop {
            let now = session.reading().await.unwrap();
            let diagnosis = now.diagnose_since(earlier);
            let is_long = now.at() - earlier.at() >= LONG;
            if let Some(finding) = diagnosis.foremost().filter(|_| is_long) {
                return finding.limiter;
            }
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_session_has_a_plan_from_what_was_measured_and_agreed() {
    let rig = Rig::start(512, 8192, |config| {
        config.keys.first_burst_length = 128 << 10;
        config.keys.max_outstanding_r2t = 3;
        config.window = 17;
    })
    .await;
    let session = session(&rig, |tuning| tuning).await;
    let plan = session.plan().unwrap();
    assert!(plan.rows().iter().all(|row| !row.reason.is_empty()), "{plan}");
    let reading = read(&session).await;
    let terms = TransferTerms::new(128 << 10, 1 << 20, 3, Some(17));
    assert_eq!(reading.measurement().terms, Some(terms));
    assert!(reading.plan().link.rtt.is_some(), "the handshake has measured it");
    assert_eq!(reading.plan().policy, Policy::Auto);
    assert_eq!(*reading.limits(), Limits::read());
    assert_eq!(reading.interface().unwrap().name, "lo");
    assert_eq!(reading.granted().no_delay, Some(true));
    assert_eq!(reading.granted().refused, []);
}

#[tokio::test]
async fn a_target_that_asks_for_each_byte_is_known_for_it() {
    let rig = Rig::start(512, 8192, |config| {
        config.keys.initial_r2t = true;
        config.keys.max_recv_data_segment_length = Some(4096);
    })
    .await;
    let immediate = read(&session(&rig, |tuning| tuning).await).await;
    assert_eq!(immediate.measurement().terms.unwrap().unsolicited, 4096);
    rig.server.with(|target| target.config_mut().keys.immediate_data = false);
    let nothing = read(&session(&rig, |tuning| tuning).await).await;
    assert_eq!(nothing.measurement().terms.unwrap().unsolicited, 0);
}

#[tokio::test]
async fn buffers_that_are_asked_for_are_granted_doubled() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| {
        tuning.with_send_buffer(Some(65_536)).with_receive_buffer(Some(98_304))
    })
    .await;
    let reading = read(&session).await;
    assert_eq!(reading.plan().send_buffer.value, Buffer::Set(65_536));
    assert_eq!(reading.granted().send_buffer, Some(131_072));
    assert_eq!(reading.granted().receive_buffer, Some(196_608));
    // The buffer size was known before the connection was opened, so no second connection was needed.
    assert_eq!(rig.server.with(|target| target.accepted()), 1);
}

#[tokio::test]
async fn nagle_is_granted() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| tuning.with_no_delay(Some(false))).await;
    let reading = read(&session).await;
    assert_eq!(reading.granted().no_delay, Some(false));
    assert!(!reading.plan().no_delay.value);
}

#[tokio::test]
async fn a_congestion_control_that_is_there_is_granted() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    for name in Limits::read().allowed_congestion_controls {
        let session =
            session(&rig, |tuning| tuning.with_congestion_control(Some(name.clone()))).await;
        assert_eq!(read(&session).await.granted().congestion_control, Some(name));
    }
}

#[tokio::test]
async fn a_congestion_control_that_is_not_there_is_explained() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let wish = |tuning: Tuning| tuning.with_congestion_control(Some("no-such".to_owned()));
    let session = session(&rig, wish).await;
    let reading = read(&session).await;
    assert_eq!(reading.granted().congestion_control, reading.limits().congestion_control);
    let choice = &reading.plan().congestion_control;
    // If the kernel does not list its algorithms, the option is set, and the kernel refuses it.
    let refused =
        reading.granted().refused.iter().any(|refusal| refusal.reason.contains("no-such"));
    assert!(choice.value.is_none() && choice.reason.contains("no-such") || refused, "{choice:?}");
}

#[tokio::test]
async fn pages_of_odd_sizes_go_one_at_a_time() {
    let rig = Rig::start(512, 8192, |config| config.keys.initial_r2t = true).await;
    let session = session(&rig, |tuning| tuning.with_sends(Some(Sends::OnePage))).await;
    assert_eq!(session.plan().unwrap().sends.value, Sends::OnePage);
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let data = Bytes::from(pattern(2 << 20, 7));
    let mut rest = data.clone();
    let mut pages = Vec::new();
    for len in [1, 511, 4095, 4096, 4097, 8191, 12_289, 100_000].into_iter().cycle() {
        pages.push(rest.split_to(len.min(rest.len())));
        if rest.is_empty() {
            break;
        }
    }
    soon(disk.write_at(0, pages)).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    assert_eq!(soon(disk.read_at(0, data.len())).await.unwrap(), data);
    rig.assert_clean();
}

/// Each MiB of a write has 2048 pages, twice as many as one system call takes. The first system call announces
/// more data, and the pages stay in order.
#[tokio::test]
async fn more_pages_than_a_system_call_takes_stay_in_order() {
    let rig = Rig::start(512, 8192, |config| {
        config.keys.max_recv_data_segment_length = Some(1 << 20);
        config.keys.first_burst_length = 1 << 20;
    })
    .await;
    for cork in [true, false] {
        let policy = if cork { Policy::Auto } else { Policy::Off };
        let session =
            session(&rig, |tuning| tuning.with_policy(policy).with_sends(Some(Sends::ManyPages)))
                .await;
        assert_eq!(session.plan().unwrap().cork.value, cork);
        let disk = soon(session.disk_without_reconnect()).await.unwrap();
        let data = Bytes::from(pattern(4 << 20, u8::from(cork)));
        let pages: Vec<_> =
            (0..data.len()).step_by(512).map(|at| data.slice(at..at + 512)).collect();
        assert!(pages.len() > 4 * 1024);
        soon(disk.write_at(0, pages)).await.unwrap();
        assert!(rig.disk.holds(0, &data));
        assert_eq!(soon(disk.read_at(0, data.len())).await.unwrap(), data);
    }
    rig.assert_clean();
}

#[tokio::test]
async fn without_tuning_a_socket_is_as_the_kernel_makes_it() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let mut expected = Granted::read(&TcpStream::connect(rig.server.address()).unwrap());
    expected.no_delay = Some(true);
    let session = session(&rig, |tuning| tuning.with_policy(Policy::Off)).await;
    let reading = read(&session).await;
    assert_eq!(*reading.granted(), expected);
    assert_eq!(reading.plan().send_buffer.value, Buffer::Autotuned);
    assert_eq!(reading.plan().receive_buffer.value, Buffer::Autotuned);
}

/// A receive buffer that follows from the round-trip time takes effect only on a new connection, so a second one
/// is opened.
#[tokio::test]
async fn a_receive_buffer_for_the_link_takes_a_second_connection() {
    let rig = slow(Duration::from_millis(5), |_| {}).await;
    let session = session(&rig, |tuning| {
        tuning.with_policy(Policy::Static).with_bandwidth(Some("10gbit".parse().unwrap()))
    })
    .await;
    let plan = session.plan().unwrap();
    assert_eq!(plan.link.basis, Basis::Declared);
    assert_eq!(plan.link.bandwidth.bits_per_second(), 10_000_000_000);
    assert!(plan.link.rtt.is_some_and(|rtt| !rtt.min.is_zero()));
    let wanted = plan.receive_buffer.value.bytes().expect("it is set");
    let granted = read(&session).await.granted().receive_buffer;
    assert!(granted.is_some_and(|bytes| bytes >= 2 * wanted), "{granted:?} for {plan}");
    assert_eq!(rig.server.with(|target| (target.accepted(), target.sessions())), (2, 1));
    soon(session.logout()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn bytes_and_the_kernels_account_are_read() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| tuning).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let before = read(&session).await;
    soon(disk.write_at(0, pattern(1 << 20, 1))).await.unwrap();
    soon(disk.read_at(0, 1 << 19)).await.unwrap();
    let after = read(&session).await;
    assert_eq!(after.bytes() - before.bytes(), (1 << 20) + (1 << 19));
    assert!(after.at() > before.at());
    let acknowledged = |info: &TcpInfo| info.bytes_acknowledged.unwrap();
    assert!(acknowledged(after.tcp_info()) - acknowledged(before.tcp_info()) >= 1 << 20);
    // With the readings swapped, no data has moved between them, and nothing panics.
    assert_eq!(before.diagnose_since(&after).foremost(), None);
}

/// Each R2T requests one block and takes its time, so a write of 192 KiB waits for 383 R2Ts. If little data
/// is moved, the cause of the wait is sampled once a second. The last sample may be taken when the target has
/// received all the data.
#[tokio::test]
async fn a_target_that_shrinks_everything_is_blamed_for_its_r2ts() {
    let rig = slow(Duration::from_millis(10), shrink).await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let plan = session.plan().unwrap();
    assert_eq!(plan.queue_depth.value, 1);
    assert!(plan.queue_depth.reason.contains("all that the peer accepts"), "{plan}");
    let before = read(&session).await;
    soon(disk.write_at(0, pattern(196_608, 3))).await.unwrap();
    let diagnosis = read(&session).await.diagnose_since(&before);
    let finding = diagnosis.foremost().unwrap();
    assert_eq!(finding.limiter, Limiter::Solicitation, "{diagnosis}");
    assert!(finding.remedy.as_ref().unwrap().contains("MaxBurstLength="), "{diagnosis}");
    assert!(rig.disk.holds(0, &pattern(196_608, 3)));
    rig.assert_clean();
}

/// Single blocks need no R2T. Because of the command window of one, the blocks are sent one after the other,
/// which takes time.
#[tokio::test]
async fn a_target_with_a_window_of_one_is_blamed_for_it() {
    let rig = slow(Duration::from_millis(10), shrink).await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let before = read(&session).await;
    let mut writes = (0..320_u64)
        .map(|block| {
            let disk = disk.clone();
            tokio::spawn(async move { disk.write_at(block * 512, pattern(512, 9)).await })
        })
        .collect::<Vec<_>>()
        .into_iter();
    for write in writes.by_ref().take(256) {
        soon(write).await.unwrap().unwrap();
    }
    // If little data is moved, the cause of the wait is sampled once a second. All samples so far show the
    // window.
    let diagnosis = read(&session).await.diagnose_since(&before);
    let finding = diagnosis.foremost().unwrap();
    assert_eq!(finding.limiter, Limiter::CommandWindow, "{diagnosis}");
    assert!(finding.evidence.contains("takes 1 commands"), "{diagnosis}");
    for write in writes {
        soon(write).await.unwrap().unwrap();
    }
    rig.assert_clean();
}

#[tokio::test]
async fn a_target_that_does_not_answer_is_blamed() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| tuning).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    rig.server.with(Target::hold);
    let pending = tokio::spawn(async move { disk.read_at(0, 512).await });
    while rig.server.with(|target| target.active_tasks()) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let before = read(&session).await;
    assert_eq!(foremost(&session, &before).await, Limiter::Target);
    rig.server.with(Target::release);
    soon(pending).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_session_waits_for_its_source() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| tuning).await;
    let before = read(&session).await;
    assert_eq!(foremost(&session, &before).await, Limiter::Source);
}

/// A session that has been idle for long is not sampled, and still reports the cause of its wait.
#[tokio::test]
async fn a_session_that_sleeps_waits_for_its_source() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| tuning).await;
    let_pass(Duration::from_millis(1500)).await;
    let before = read(&session).await;
    assert_eq!(foremost(&session, &before).await, Limiter::Source);
    // The idle time is reported once, not again for the request that ends it.
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    soon(disk.read_at(0, 512)).await.unwrap();
    let after = read(&session).await;
    // Only a little data was moved, and it was read.
    assert_eq!(after.diagnose_since(&before).foremost().unwrap().limiter, Limiter::Destination);
}

#[tokio::test]
async fn a_reading_after_the_end_is_an_error() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let ended = session(&rig, |tuning| tuning).await;
    soon(ended.logout()).await.unwrap();
    let why = soon(ended.reading()).await.unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Closed, "{why:?}");
    assert!(ended.plan().is_some(), "what it was stays known");

    let cut = session(&rig, |tuning| tuning).await;
    rig.server.stop().await;
    let cause = soon(cut.closed()).await.unwrap_err();
    let why = soon(cut.reading()).await.unwrap_err();
    assert_eq!(why.to_string(), cause.to_string());
}

#[tokio::test]
async fn readings_while_a_session_ends_come_to_an_end() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = session(&rig, |tuning| tuning).await;
    let readings: Vec<_> = (0..32)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { session.reading().await })
        })
        .collect();
    soon(session.logout()).await.unwrap();
    for reading in readings {
        let result = soon(reading).await.unwrap();
        let failed = result.as_ref().err().map(Error::kind);
        assert!(matches!(failed, None | Some(ErrorKind::Closed)), "{result:?}");
    }
}

/// The pacing rate follows the ceil of the traffic class while requests run: it is 5 % higher, but at least
/// 655,360 bit/s.
#[tokio::test]
async fn connections_of_a_disk_send_a_little_above_the_ceil_of_its_class() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let shaper = Shaper::new(Class::new("80mbit".parse().unwrap())).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let session = rig.session(Options::default().with_class(Some(class))).await;
    let unit = session.logical_unit(Lun::ZERO);
    assert_eq!(read(&session).await.tcp_info().max_pacing_rate, None);
    let paced = async |rate: Option<Rate>| {
        let write = async || {
            unit.write(0, Bytes::from(vec![1; 512])).await.unwrap();
            session.reading().await.unwrap().tcp_info().max_pacing_rate
        };
        soon(async { while write().await != rate {} }).await;
    };
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    paced("84mbit".parse().ok()).await;
    for (rate, pacing_rate) in [("40mbit", "42mbit"), ("1kbit", "655360bit"), ("off", "off")] {
        shaper.change(shaper.root(), Class::new(rate.parse().unwrap())).unwrap();
        paced(pacing_rate.parse().ok()).await;
    }
    soon(disk.logout()).await.unwrap();
    rig.assert_clean();
}
