//! The test target as a program of its own: a RAM disk at an address of 127.0.0.1, until standard
//! input ends.
//!
//! ```text
//! cargo run --release -p iscsi-testkit --features serve --example target -- 256
//! ```
//!
//! It prints the URL of a disk of so many MiB (64 unless given) and then serves it. Bursts may be
//! as long as RFC 7143 allows, so that only the socket holds a writer back.
#![expect(clippy::disallowed_methods, reason = "a program has arguments and an input")]
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::io::Read;

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

const NAME: &str = "iqn.2026-01.org.example:testkit";
const MAX_BURST: u32 = (1 << 24) - 1;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mebibytes = std::env::args().nth(1).and_then(|size| size.parse().ok()).unwrap_or(64);
    let mut config = TargetConfig::new(NAME, RamDisk::new(512, mebibytes * 2048));
    config.keys.initial_r2t = false;
    config.keys.first_burst_length = MAX_BURST;
    config.keys.max_burst_length = MAX_BURST;
    let server = Server::start(Target::new(config)).await?;
    println!("iscsi://{}/{NAME}/0", server.address());
    let wait = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = wait.await;
    server.stop().await;
    Ok(())
}
