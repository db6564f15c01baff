//! Flushes that take long, and what else is asked of the disk meanwhile.

use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::Access;

use super::*;

/// A flush that takes long beside its round trip.
const LONG: Duration = Duration::from_secs(2);
/// More than all of a test takes, if nothing waits for ever.
const LIMIT: Duration = Duration::from_secs(60);

async fn slow_disk(sessions: u32, requests: usize) -> Disk {
    let mut config = TargetConfig::new(TARGET, RamDisk::new(512, 8192));
    config.faults.push(Fault::delay(.., LONG).on_access(Access::SynchronizeCache));
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    let network = Simulated::new([Arc::new(Mutex::new(Target::new(config)))], properties);
    let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
    let mut options = Options { use_environment: false, ..Options::default() };
    options = options.with_sessions(Sessions::Fixed(sessions)).with_max_requests(requests);
    let node = Node::over(Arc::new(network), name, options).unwrap();
    let url = format!("iscsi://192.0.2.1/{TARGET}/0");
    open::open(&node, Url::parse(&url).unwrap()).await.unwrap()
}

/// A flush behind a slow one has a path of its own. It has its share of the budget before that, or it would wait for one
/// from requests that wait for its path.
#[tokio::test(start_paused = true)]
async fn a_flush_with_a_path_of_its_own_and_requests_do_not_wait_for_each_other() {
    for (sessions, requests, others) in [(1, 1, 4), (1, 4, 16), (2, 2, 8), (2, 8, 32)] {
        let disk = slow_disk(sessions, requests).await;
        let page = Bytes::from(vec![1; 4096]);
        disk.write_at(0, page.clone()).await.unwrap();
        disk.flush().await.unwrap();
        let asked = (0..others).map(|number: u64| {
            let (disk, page) = (disk.clone(), page.clone());
            tokio::spawn(async move {
                disk.write_at(number * 4096, page).await?;
                if number.is_multiple_of(4) {
                    disk.flush().await
                } else {
                    disk.read_at(0, 512).await.map(drop)
                }
            })
        });
        let asked: Vec<_> = asked.collect();
        for request in asked {
            let ended = tokio::time::timeout(LIMIT, request).await;
            let what = format!("{sessions} sessions, {requests} requests at once");
            ended.unwrap_or_else(|_| panic!("no end: {what}")).unwrap().unwrap();
        }
        disk.logout().await.unwrap();
    }
}
