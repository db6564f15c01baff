//! Tests of paths that drop long packets without an ICMP message.

use super::*;
use crate::Error;

const SHORT_PACKETS: usize = 1348;
const SHORTER_PACKETS: usize = 1100;

/// Opens a disk with `sessions` sessions over a path that carries segments of at most `passing` bytes, to the
/// target and from the target.
async fn disk_behind(passing: [usize; 2], sessions: u32) -> (Simulated, Result<Disk, Error>) {
    let target = Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 8192)));
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    let network = Simulated::new([Arc::new(Mutex::new(target))], properties);
    *lock(&network.portals[0].path) = Some(passing);
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let mut options = Options { use_environment: false, ..Options::default() };
    options = options.with_sessions(Sessions::Fixed(sessions));
    let node = Node::over(Arc::new(network.clone()), name, options).unwrap();
    let url = Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap();
    let disk = open::open(&node, url).await;
    (network, disk)
}

fn segments_of(disk: &Disk) -> Vec<Option<u32>> {
    let sessions = disk.sessions();
    sessions.iter().map(|session| session.plan().unwrap().segment.value).collect()
}

fn notes_of(disk: &Disk) -> Vec<String> {
    disk.status().notes.iter().map(ToString::to_string).collect()
}

/// RFC 2923 §2.1: a black hole is detected, avoided, reported and remembered, in either direction.
#[tokio::test(start_paused = true)]
async fn long_packets_that_do_not_arrive_become_short_ones() {
    for (passing, segment, way) in [
        (
            [SHORT_PACKETS, usize::MAX],
            1200,
            "packets of 1500 bytes do not arrive at 192.0.2.1:3260",
        ),
        (
            [usize::MAX, SHORT_PACKETS],
            1200,
            "packets of 1500 bytes from 192.0.2.1:3260 do not arrive here",
        ),
        ([SHORTER_PACKETS; 2], 536, "packets of 1500 bytes do not arrive at 192.0.2.1:3260"),
    ] {
        let (network, disk) = disk_behind(passing, 2).await;
        let disk = disk.unwrap();
        let data = Bytes::from(vec![0x5a; 64 << 10]);
        let begun = Instant::now();
        if passing[0] < usize::MAX {
            disk.write_at(0, data.clone()).await.unwrap();
        }
        let read = disk.read_at(0, data.len()).await.unwrap();
        assert!(passing[0] == usize::MAX || read == data);
        assert!(begun.elapsed() < Duration::from_secs(30), "{passing:?}: {:?}", begun.elapsed());
        let notes = notes_of(&disk);
        let told = notes.iter().filter(|note| note.starts_with(way));
        assert_eq!(told.count(), 1, "{notes:?}");
        // Connections that stood still on the path are closed as soon as they are needed.
        for _ in 0..20 {
            disk.write_at(0, data.clone()).await.unwrap();
            disk.read_at(0, data.len()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        let segments = segments_of(&disk);
        assert!(segments.contains(&Some(segment)), "{segments:?}");
        disk.logout().await.unwrap();
        assert!(lock(&network.portals[0].target).violations().is_empty());
    }
}

/// A dead link and a busy target make a connection stand still in the same way as a black hole does, but no
/// limit of the segments may be set for them.
#[tokio::test(start_paused = true)]
async fn other_stillness_is_no_black_hole() {
    for (what, is_dark) in [("the link is dead", true), ("the target is busy", false)] {
        let (network, disk) = disk_behind([usize::MAX; 2], 1).await;
        let disk = disk.unwrap();
        let portal = &network.portals[0];
        portal.is_dark.store(is_dark, Ordering::Relaxed);
        portal.hold();
        let reading = tokio::spawn({
            let disk = disk.clone();
            async move { disk.read_at(0, 64 << 10).await }
        });
        tokio::time::sleep(Duration::from_secs(14)).await;
        portal.is_dark.store(false, Ordering::Relaxed);
        portal.release();
        reading.await.unwrap().unwrap();
        assert_eq!(segments_of(&disk), [None], "{what}");
        assert_eq!((notes_of(&disk), disk.status().reconnects), (Vec::new(), 0), "{what}");
        disk.logout().await.unwrap();
    }
}
