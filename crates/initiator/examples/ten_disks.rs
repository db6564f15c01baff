//! Writes and reads 16 MiB on each of ten disks concurrently, and prints the statistics of each disk and
//! of all of them. **It changes the disks.**
//!
//! ```text
//! cargo run -p iscsi-initiator --example ten_disks -- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/{0..9}
//! ```
//!
//! To try it: `cargo run -p iscsi-testkit --features serve --example target -- 16 10` serves ten disks in
//! memory and prints their URLs.
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use iscsi_initiator::{DiskStats, Error, Initiator, RequestStats};
use tokio::task::JoinSet;

const PAGE: usize = 64 << 10;
const PAGES: u64 = 256;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let initiator = Initiator::new("iqn.2026-01.org.example:service")?;
    let mut disks: JoinSet<_> =
        std::env::args().skip(1).map(|url| use_disk(initiator.clone(), url)).collect();
    let mut all = RequestStats::default();
    while let Some(stats) = disks.join_next().await {
        let stats = stats??;
        println!("{stats}\n");
        all += &stats.requests;
    }
    println!("all disks{all}");
    Ok(())
}

async fn use_disk(initiator: Initiator, url: String) -> Result<DiskStats, Error> {
    let disk = initiator.disk(&*url).await?;
    for offset in (0..PAGES).map(|page| page * PAGE as u64) {
        disk.write_at(offset, vec![0x5a; PAGE]).await?;
        disk.read_at(offset, PAGE).await?;
    }
    disk.flush().await?;
    let stats = disk.stats();
    disk.logout().await?;
    Ok(stats)
}
