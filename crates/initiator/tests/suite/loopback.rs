//! Tests of whole sessions against the test target over TCP.

use std::collections::BTreeMap;
use std::io::SeekFrom;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Rig, TARGET, initiator, pattern, soon};
use bytes::{Bytes, BytesMut};
use iscsi_initiator::device::BufferPool;
use iscsi_initiator::scsi::{Cdb, Lun, SenseKey};
use iscsi_initiator::{Error, ErrorKind, Options};
use iscsi_testkit::config::{Chap, DigestPolicy, Portal, Redirect};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::Unit;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::time::sleep;

#[tokio::test]
async fn writes_and_reads_of_any_size_and_alignment() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    assert_eq!((disk.capacity(), disk.block_size()), (8192 * 512, 512));
    for (offset, len) in
        [(0, 512), (512, 1 << 20), (1, 1), (1023, 2), (5000, 70_001), (4_194_303, 1)]
    {
        let data = pattern(len, offset as u8);
        soon(disk.write_at(offset, data.clone())).await.unwrap();
        assert!(rig.disk.holds(offset, &data), "{len} bytes at {offset}");
        assert_eq!(soon(disk.read_at(offset, len)).await.unwrap(), data);
        let buffer = BytesMut::zeroed(len);
        assert_eq!(soon(disk.read_into(offset, buffer)).await.unwrap(), data);
    }
    soon(disk.flush()).await.unwrap();
    assert_eq!(rig.disk.flushes(), 1);
    soon(session.logout()).await.unwrap();
    rig.assert_clean();
}

/// A buffer pool that counts the buffers that it supplies.
#[derive(Debug, Default)]
struct Pool(AtomicUsize);

impl BufferPool for Pool {
    fn take(&self, len: usize) -> BytesMut {
        self.0.fetch_add(1, Ordering::Relaxed);
        BytesMut::zeroed(len)
    }
}

#[tokio::test]
async fn a_read_takes_its_buffer_when_data_comes() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    rig.disk.fill(3);
    let disk = rig.session(Options::default()).await.disk_without_reconnect().await.unwrap();
    let pool = Arc::new(Pool::default());
    let taken = || pool.0.load(Ordering::Relaxed);
    rig.server.with(|target| target.hold());
    let reads: Vec<_> = (0..8)
        .map(|number| {
            let (disk, pool) = (disk.clone(), pool.clone());
            tokio::spawn(async move { disk.read_with(number * 4096, 4096, pool).await.unwrap() })
        })
        .collect();
    soon(async {
        while rig.server.with(|target| target.active_tasks()) < 8 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(taken(), 0);
    rig.server.with(|target| target.release());
    for (offset, read) in (0..).step_by(4096).zip(reads) {
        assert!(rig.disk.holds(offset, &soon(read).await.unwrap()));
    }
    assert_eq!(taken(), 8);
    let part = soon(disk.read_with(100, 700, pool.clone())).await.unwrap();
    assert!(rig.disk.holds(100, &part) && part.len() == 700);
    assert_eq!(taken(), 9);
    let end = soon(disk.read_with(8192 * 512 - 1, 2, pool.clone())).await;
    assert_eq!(end.as_ref().err().map(Error::kind), Some(ErrorKind::InvalidInput));
}

#[tokio::test]
async fn reads_land_in_the_callers_buffer() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    rig.disk.fill(3);
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap().with_max_transfer(65536);
    let buffer = BytesMut::zeroed(1 << 20);
    let place = buffer.as_ptr();
    let buffer = soon(disk.read_into(512, buffer)).await.unwrap();
    assert_eq!(buffer.as_ptr(), place, "sixteen reads filled one buffer, without a copy of it");
    assert!(rig.disk.holds(512, &buffer));
}

#[tokio::test]
async fn page_lists_go_out_in_order() {
    let rig = Rig::start(4096, 256, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let data = pattern(64 * 4096, 3);
    let pages: Vec<Bytes> = data.chunks(1000).map(Bytes::copy_from_slice).collect();
    soon(disk.write_at(4096, pages)).await.unwrap();
    assert!(rig.disk.holds(4096, &data));
    rig.assert_clean();
}

#[tokio::test]
async fn many_requests_of_many_tasks_run_at_once() {
    let rig = Rig::start(512, 65536, |config| config.window = 8).await;
    let options = Options::default().with_max_bytes_in_flight(300_000).with_max_requests(20);
    let session = rig.session(options).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let tasks: Vec<_> = (0..128u64)
        .map(|number| {
            let disk = disk.clone();
            tokio::spawn(async move {
                let data = pattern(65536, number as u8);
                disk.write_at(number * 65536, data.clone()).await?;
                Ok::<bool, Error>(disk.read_at(number * 65536, 65536).await? == data)
            })
        })
        .collect();
    for task in tasks {
        assert!(soon(task).await.unwrap().unwrap());
    }
    rig.assert_clean();
}

#[tokio::test]
async fn long_requests_are_split_by_the_units_limits() {
    let rig = Rig::start(512, 8192, |config| {
        config.units.get_mut(&0).unwrap().max_transfer_blocks = 100;
    })
    .await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    assert_eq!(disk.max_transfer(), 51200);
    let data = pattern(1 << 20, 0);
    soon(disk.write_at(300, data.clone())).await.unwrap();
    assert_eq!(soon(disk.read_at(300, 1 << 20)).await.unwrap(), data);
    assert!(rig.disk.holds(300, &data));
    assert_eq!(disk.clone().with_max_transfer(1).max_transfer(), 512);
    assert_eq!(disk.with_max_transfer(2000).max_transfer(), 1536);
}

#[tokio::test]
async fn digests_and_mutual_chap_work_together() {
    let rig = Rig::start(512, 4096, |config| {
        config.chap = Some(Chap::new("me", "a long secret").mutual("you", "another secret"));
        config.keys.header_digest = DigestPolicy::Require;
        config.keys.data_digest = DigestPolicy::Require;
    })
    .await;
    let url = format!(
        "iscsi://me:a%20long%20secret@{}/{TARGET}/0?target_user=you&target_password=another%20secret\
         &header_digest=crc32c&data_digest=crc32c",
        rig.server.address()
    );
    let session = soon(initiator(Options::default()).connect(&url)).await.unwrap();
    let disk = session.disk_without_reconnect().await.unwrap();
    let data = pattern(200_003, 9);
    soon(disk.write_at(7, data.clone())).await.unwrap();
    assert_eq!(soon(disk.read_at(7, data.len())).await.unwrap(), data);
    assert_eq!(session.negotiated().data_digest, iscsi_pdu::Digest::Crc32c);
    rig.assert_clean();
}

#[tokio::test]
async fn a_probe_costs_no_turn_of_its_own_and_survives_unit_attention() {
    let rig = Rig::start(512, 4096, |config| {
        let unit = config.units.get_mut(&0).unwrap();
        unit.unit_attention = true;
        unit.serial = "serial 7".into();
        unit.physical_block_exponent = 3;
    })
    .await;
    let url = rig.unit_url(0, "?force_usn=serial%207");
    let session = soon(initiator(Options::default()).connect(url)).await.unwrap();
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    let commands = rig.server.with(|target| target.commands().len());
    let profile = disk.profile();
    assert_eq!(profile.serial_number.as_deref(), Some("serial 7"));
    assert_eq!(profile.vendor, "TESTKIT");
    assert_eq!(profile.designator.as_ref().unwrap().to_string(), "naa.3000000000000001");
    assert_eq!(profile.capacity.physical_block_size, 4096);
    assert!(!profile.write_protected);
    // A second handle sends no query.
    session.disk_without_reconnect().await.unwrap();
    assert_eq!(rig.server.with(|target| target.commands().len()), commands);
    disk.write_at(0, vec![1; 512]).await.unwrap();
    disk.flush().await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn all_questions_go_out_before_any_is_answered() {
    let rig = Rig::start(512, 64, |_| {}).await;
    rig.server.with(|target| target.hold());
    let session = rig.session(Options::default()).await;
    // The caller does not poll the future of the disk, and no response has arrived.
    crate::support::until(|| rig.server.with(|target| target.commands().len()) == 11).await;
    rig.server.with(|target| target.release());
    soon(session.disk_without_reconnect()).await.unwrap();
    assert_eq!(rig.server.with(|target| target.commands().len()), 11);
    rig.assert_clean();
}

#[tokio::test]
async fn a_host_may_have_a_name_with_several_addresses() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let url = format!("iscsi://localhost:{}/{TARGET}/0", rig.server.address().port());
    let session = soon(initiator(Options::default()).connect(url)).await.unwrap();
    soon(session.disk_without_reconnect()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn discovery_lists_targets() {
    let rig = Rig::start(512, 64, |config| {
        config.discovery.targets = vec![Portal {
            name: TARGET.into(),
            addresses: vec!["10.0.0.5:3260,1".into(), "[fec0::3]:3260,2".into()],
        }];
        config.discovery.split = Some(20);
    })
    .await;
    let targets = soon(initiator(Options::default()).discover(rig.url("/"))).await.unwrap();
    assert_eq!(targets.len(), 1);
    let hosts: Vec<_> = targets[0].addresses.iter().map(|address| address.host.as_str()).collect();
    assert_eq!(hosts, ["10.0.0.5", "fec0::3"]);
    rig.assert_clean();
}

#[tokio::test]
async fn units_are_listed_and_addressed_by_number() {
    let other = RamDisk::new(512, 16);
    let rig = Rig::start(512, 64, |config| {
        config.units =
            BTreeMap::from([(0, config.units[&0].clone()), (300, Unit::new(other.clone()))]);
    })
    .await;
    let session = rig.session(Options::default()).await;
    let luns = soon(session.report_luns()).await.unwrap();
    assert_eq!(luns, [Lun::ZERO, Lun::new(300).unwrap()]);
    let disk = session.logical_unit(luns[1]).disk_without_reconnect().await.unwrap();
    disk.write_at(0, vec![7; 8192]).await.unwrap();
    assert!(other.holds(0, &[7; 8192]));
    rig.assert_clean();
}

#[tokio::test]
async fn a_long_list_of_units_is_read_whole() {
    let rig = Rig::start(512, 8, |config| {
        let unit = config.units[&0].clone();
        config.units = (0..3000).map(|number| (number, unit.clone())).collect();
    })
    .await;
    let session = rig.session(Options::default()).await;
    let luns = soon(session.report_luns()).await.unwrap();
    assert!(luns.iter().map(|lun| lun.number()).eq((0..3000).map(Some)));
}

#[tokio::test]
async fn any_cdb_may_be_sent_and_its_sense_is_an_error() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let unit = session.logical_unit(Lun::ZERO);
    let inquiry = unit.command(Cdb::inquiry(96)).with_read(BytesMut::zeroed(96));
    let data = soon(unit.execute(inquiry)).await.unwrap().data;
    assert_eq!(&data[8..15], b"TESTKIT");
    let unknown = unit.command(Cdb::new(&[0xff; 16]).unwrap());
    let error = soon(unit.execute(unknown)).await.unwrap_err();
    assert_eq!(error.sense().unwrap().key, SenseKey::IllegalRequest);
    assert_eq!(unit.inquiry().await.unwrap().product, "RAM disk");
    assert!(unit.test_unit_ready().await.is_ok());
    let read = unit.read(1, 2).await.unwrap();
    assert_eq!(read.len(), 1024);
    assert_eq!(
        unit.write(0, vec![0; 100]).await.as_ref().err().map(Error::kind),
        Some(ErrorKind::InvalidInput)
    );
    rig.assert_clean();
}

#[tokio::test]
async fn zeros_and_discards_keep_their_neighbours() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    rig.disk.fill(1);
    let before = rig.disk.read(0, 1 << 20);
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    soon(disk.write_zeroes(700, 5000)).await.unwrap();
    assert!(rig.disk.holds(700, &[0; 5000]));
    assert!(rig.disk.holds(0, &before[..700]) && rig.disk.holds(5700, &before[5700..6000]));
    soon(disk.discard(10_000, 10_000)).await.unwrap();
    assert!(rig.disk.holds(10_240, &[0; 9728]));
    assert!(rig.disk.holds(0, &before[..700]));
    assert!(rig.disk.holds(10_000, &before[10_000..10_240]));
    assert!(rig.disk.holds(19_968, &before[19_968..20_480]));
    let status = disk.unit().get_lba_status(20).await.unwrap();
    assert!(status.extents[0].status.is_unmapped());
    rig.assert_clean();
}

#[tokio::test]
async fn a_stream_reads_writes_and_seeks() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let data = pattern(1_500_001, 5);
    let mut stream = disk.stream(12_345);
    soon(stream.write_all(&data)).await.unwrap();
    soon(stream.flush()).await.unwrap();
    assert!(rig.disk.holds(12_345, &data));
    assert_eq!(rig.disk.flushes(), 1);

    soon(stream.seek(SeekFrom::Start(12_345))).await.unwrap();
    let mut back = vec![0; data.len()];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert!(back == data);

    // A read returns data that was written before, without a flush.
    soon(stream.seek(SeekFrom::Start(100))).await.unwrap();
    soon(stream.write_all(b"hello")).await.unwrap();
    soon(stream.seek(SeekFrom::Current(-5))).await.unwrap();
    let mut word = [0; 5];
    soon(stream.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"hello");

    soon(stream.seek(SeekFrom::End(-3))).await.unwrap();
    let mut rest = Vec::new();
    assert_eq!(soon(stream.read_to_end(&mut rest)).await.unwrap(), 3);
    let full = soon(stream.write_all(b"x")).await.unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    rig.assert_clean();
}

#[tokio::test]
async fn the_last_handle_logs_out() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    drop(session);
    disk.read_at(0, 512).await.unwrap();
    assert_eq!(rig.server.with(|target| target.sessions()), 1);
    drop(disk);
    crate::support::until(|| rig.server.with(|target| target.sessions()) == 0).await;
    rig.assert_clean();
}

#[tokio::test]
async fn a_logout_lets_requests_finish_and_takes_no_more() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let session = rig.session(Options::default()).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let data = pattern(1 << 20, 1);
    let write = disk.write_at(0, data.clone());
    let (written, ended) = soon(async { tokio::join!(write, session.logout()) }).await;
    written.unwrap();
    ended.unwrap();
    assert!(rig.disk.holds(0, &data));
    assert_eq!(disk.read_at(0, 1).await.as_ref().err().map(Error::kind), Some(ErrorKind::Closed));
    assert_eq!(session.ping().await.as_ref().err().map(Error::kind), Some(ErrorKind::Closed));
    assert!(!session.is_open());
    soon(session.closed()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_session_answers_what_it_is() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let session = rig.session(Options::default()).await;
    soon(session.ping()).await.unwrap();
    assert_eq!(session.target().unwrap().as_str(), TARGET);
    assert_eq!(session.portal().unwrap().port, rig.server.address().port());
    assert_eq!(session.negotiated().max_burst_length, 1 << 20);
    let targets = soon(session.send_targets()).await.unwrap();
    assert_eq!(targets[0].name.as_str(), TARGET);
    assert!(session.stats().pdus_sent > 2);
    rig.assert_clean();
}

#[tokio::test]
async fn a_redirected_login_ends_at_the_other_portal() {
    let rig = Rig::start(512, 64, |_| {}).await;
    let address = rig.server.address().to_string();
    let gate = Rig::start(512, 8, |config| {
        config.login.redirect =
            Some(Redirect { address, permanent: false, after_authentication: false });
    })
    .await;
    let session = gate.session(Options::default()).await;
    assert_eq!(session.portal().unwrap().port, rig.server.address().port());
    assert_eq!(soon(session.disk_without_reconnect()).await.unwrap().capacity(), 64 * 512);
    rig.assert_clean();
}

#[tokio::test]
async fn a_target_that_reads_no_list_of_algorithms_gets_a_single_one() {
    let rig = Rig::start(512, 64, |config| {
        let mut chap = Chap::new("me", "a long secret");
        chap.no_lists = true;
        chap.algorithms = vec![5];
        config.chap = Some(chap);
    })
    .await;
    let options = Options::default()
        .with_chap(Some(iscsi_initiator::Chap::new("me", "a long secret".into())));
    let session = soon(rig.session(options)).await;
    assert_eq!(rig.server.with(|target| target.accepted()), 2);
    soon(session.disk_without_reconnect()).await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn both_directions_full_at_once_do_not_block_each_other() {
    let rig = Rig::start(4096, 16384, |config| config.window = 128).await;
    let options = Options::default().with_max_bytes_in_flight(256 << 20);
    let session = rig.session(options).await;
    let disk = session.disk_without_reconnect().await.unwrap();
    let data = Bytes::from(pattern(4 << 20, 1));
    let tasks: Vec<_> = (0..16u64)
        .map(|number| {
            let (disk, data) = (disk.clone(), data.clone());
            tokio::spawn(async move {
                let offset = number % 8 * (4 << 20);
                if number < 8 {
                    return disk.write_at(offset, data).await.is_ok();
                }
                disk.read_at((32 << 20) + offset, 4 << 20)
                    .await
                    .is_ok_and(|read| read.len() == 4 << 20)
            })
        })
        .collect();
    for task in tasks {
        assert!(soon(task).await.unwrap());
    }
    assert!(rig.disk.holds(28 << 20, &data));
    rig.assert_clean();
}
