//! What a session is seen to wait for.

use iscsi_tuner::Limiter;

use super::*;

const BLOCK: u32 = 512;
/// Answers come every three intervals between looks, and the link's timers are set before those of the looks: they ring first.
const LATENCY: Duration = Duration::from_millis(75);

/// A look at what is waited for comes at the moment of an answer, and the next command has its turn by that answer.
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
