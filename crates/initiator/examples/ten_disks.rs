//! A service over ten disks: writes and reads on all of them for a second, and prints the statistics of
//! each and of all. **It changes the disks.** Without URLs it serves ten small disks itself.
//!
//! ```text
//! cargo run -p iscsi-initiator --example ten_disks [-- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 ...]
//! ```
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iscsi_initiator::{Disk, DiskStats, Initiator, RequestStats};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::Unit;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use tokio::task::JoinSet;

const TARGET: &str = "iqn.2026-01.org.example:ten-disks";
const PAGE: usize = 64 << 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let server = if urls.is_empty() { Some(serve(&mut urls).await?) } else { None };

    let initiator = Initiator::new("iqn.2026-01.org.example:service")?;
    let mut work = JoinSet::new();
    for url in urls {
        let initiator = initiator.clone();
        work.spawn(async move { use_disk(&initiator.disk(&*url).await?).await });
    }
    let mut all = RequestStats::default();
    while let Some(stats) = work.join_next().await {
        let stats = stats??;
        println!("{stats}\n");
        all += &stats.requests;
    }
    println!("all disks{all}");
    if let Some(server) = server {
        server.stop().await;
    }
    Ok(())
}

/// Writes and reads page after page for a second.
async fn use_disk(disk: &Disk) -> Result<DiskStats, iscsi_initiator::Error> {
    let begun = Instant::now();
    let page = Bytes::from(vec![0x5a; PAGE]);
    let pages = disk.capacity() / PAGE as u64;
    for offset in (0..pages).map(|number| number * PAGE as u64).cycle() {
        if begun.elapsed() > Duration::from_secs(1) {
            break;
        }
        disk.write_at(offset, page.clone()).await?;
        disk.read_at(offset, PAGE).await?;
    }
    disk.flush().await?;
    let stats = disk.stats();
    disk.logout().await?;
    Ok(stats)
}

/// Serves ten units from memory, and adds their URLs.
async fn serve(urls: &mut Vec<String>) -> Result<Server, Box<dyn Error>> {
    let disk = || RamDisk::new(512, (4 << 20) / 512);
    let mut config = TargetConfig::new(TARGET, disk());
    for lun in 0..10 {
        let mut unit = Unit::new(disk());
        unit.naa += u64::from(lun);
        config.units.insert(lun, unit);
    }
    let server = Server::start(Target::new(config)).await?;
    urls.extend((0..10).map(|lun| format!("iscsi://{}/{TARGET}/{lun}", server.address())));
    Ok(server)
}
