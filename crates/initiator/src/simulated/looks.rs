//! Tests of the reasons that the driver's polls report for the waits of a session.

use iscsi_shaper::Class;
use iscsi_tuner::{Diagnosis, Limiter};

use super::*;
use crate::{Disk, Shaper};

const BLOCK: u32 = 512;
/// Latency of the link. Responses come every three intervals of the polls. The link's timers are set before
/// those of the polls, so they fire first.
const LATENCY: Duration = Duration::from_millis(75);

/// A poll is due at the moment at which a response makes room for the next command. The command is sent before
/// the poll. So the poll sees what the session waits for while that command is in flight.
#[tokio::test(start_paused = true)]
async fn what_an_answer_lets_out_is_sent_before_it_is_seen_what_is_waited_for() {
    let mut config = TargetConfig::new(TARGET, RamDisk::new(BLOCK, 8192));
    config.window = 1;
    let mut properties = Properties::default();
    properties.latency = LATENCY;
    let (_network, disk) = disk_of(config, properties).await;
    let session = disk.sessions().remove(0);
    let before = session.reading().await.unwrap();
    let write = |place: u64| {
        let disk = disk.clone();
        tokio::spawn(async move {
            disk.write_at(place * u64::from(BLOCK), Bytes::from(vec![7; BLOCK as usize])).await
        })
    };
    let mut writes = (0..60).map(write).collect::<Vec<_>>().into_iter();
    for write in writes.by_ref().take(50) {
        write.await.unwrap().unwrap();
    }
    let diagnosis = session.reading().await.unwrap().diagnose_since(&before);
    let limiters: Vec<_> = diagnosis.findings.iter().map(|finding| finding.limiter).collect();
    assert_eq!(limiters, [Limiter::CommandWindow], "{diagnosis}");
    for write in writes {
        write.await.unwrap().unwrap();
    }
}

async fn open(options: Options) -> Disk {
    let mut properties = Properties::default();
    properties.latency = LATENCY;
    let target = Target::new(TargetConfig::new(TARGET, RamDisk::new(BLOCK, 8192)));
    let network = Simulated::new([Arc::new(Mutex::new(target))], properties);
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let options = options.with_use_environment(false).with_sessions(Sessions::Fixed(1));
    let node = Node::over(Arc::new(network), name, options).unwrap();
    open::open(&node, Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap()).await.unwrap()
}

/// Returns what held a disk back during `work`.
async fn diagnose(disk: &Disk, work: impl Future<Output = ()>) -> Diagnosis {
    let session = disk.sessions().remove(0);
    let before = session.reading().await.unwrap();
    work.await;
    session.reading().await.unwrap().diagnose_since(&before)
}

/// Requests that wait for their traffic class count as held back by the class, not by the source. This holds
/// also at a rate at which the session is idle between two requests, in either direction, and while the class
/// is paused.
#[tokio::test(start_paused = true)]
async fn what_waits_in_its_class_does_not_wait_for_its_source() {
    for rate in ["2mbit", "4kbit"] {
        let shaper = Shaper::new(Class::new(rate.parse().unwrap())).unwrap();
        let class = shaper.traffic_class(shaper.default_class());
        let disk = open(Options::default().with_class(Some(class.clone()))).await;
        let len = if rate == "2mbit" { 2 << 20 } else { 64 << 10 };
        let write = diagnose(&disk, async { disk.write_at(0, vec![7; len]).await.unwrap() }).await;
        let read = diagnose(&disk, async { drop(disk.read_at(0, len).await.unwrap()) }).await;
        for diagnosis in [write, read] {
            let foremost = diagnosis.foremost().unwrap();
            assert!(foremost.limiter == Limiter::Class && foremost.share > 0.8, "{diagnosis}");
            let limit: Rate = rate.parse().unwrap();
            assert!(foremost.evidence.contains(&limit.to_string()), "{diagnosis}");
        }
        class.pause();
        let paused = diagnose(&disk, async {
            drop(
                tokio::time::timeout(Duration::from_secs(10), disk.write_at(0, vec![7; 512])).await,
            );
        });
        assert_eq!(paused.await.foremost().unwrap().limiter, Limiter::Class);
        // No request waits, so the traffic class is not the reason.
        let idle = diagnose(&disk, tokio::time::sleep(Duration::from_secs(10))).await;
        assert_eq!(idle.foremost().unwrap().limiter, Limiter::Source, "{idle}");
    }
}

/// Requests that wait because the caller has submitted more than the in-flight limit permits count as held back
/// by that limit.
#[tokio::test(start_paused = true)]
async fn what_waits_for_the_limit_of_requests_in_flight_is_told_of_it() {
    let disk = open(Options::default().with_max_requests(1)).await;
    let diagnosis = diagnose(&disk, async {
        let reads = (0..40).map(|at| {
            let disk = disk.clone();
            tokio::spawn(async move { disk.read_at(at * 4096, 4096).await.unwrap() })
        });
        for read in reads.collect::<Vec<_>>() {
            read.await.unwrap();
        }
    });
    let diagnosis = diagnosis.await;
    let foremost = diagnosis.foremost().unwrap();
    assert_eq!(foremost.limiter, Limiter::InFlightLimit, "{diagnosis}");
    assert!(foremost.evidence.contains("1 request and 64 MiB of data"), "{diagnosis}");
}
