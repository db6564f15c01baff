//! The test target as a program: RAM disks at an address of 127.0.0.1, until standard input ends.
//!
//! ```text
//! cargo run --release -p iscsi-testkit --features serve --example target -- 256 10
//! ```
//!
//! The arguments are the size of each disk in MiB (64 by default) and the number of disks (1 by default). The
//! program prints the URLs of the disks, and then serves them. Bursts may be as long as RFC 7143 allows, so
//! that only the socket limits the rate of a writer.
#![expect(clippy::disallowed_methods, reason = "a program has arguments and an input")]
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::io::Read;

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::Unit;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

const NAME: &str = "iqn.2026-01.org.example:testkit";
const MAX_BURST: u32 = (1 << 24) - 1;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let number = |at| std::env::args().nth(at).and_then(|text| text.parse::<u16>().ok());
    let (mebibytes, units) = (number(1).unwrap_or(64), number(2).unwrap_or(1));
    let disk = || RamDisk::new(512, u64::from(mebibytes) * 2048);
    let mut config = TargetConfig::new(NAME, disk());
    for lun in 1..units {
        let mut unit = Unit::new(disk());
        unit.naa += u64::from(lun);
        config.units.insert(lun, unit);
    }
    config.keys.initial_r2t = false;
    config.keys.first_burst_length = MAX_BURST;
    config.keys.max_burst_length = MAX_BURST;
    let server = Server::start(Target::new(config)).await?;
    for lun in 0..units.max(1) {
        println!("iscsi://{}/{NAME}/{lun}", server.address());
    }
    let wait = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = wait.await;
    server.stop().await;
    Ok(())
}
