//! Writes a greeting to an unaligned offset of a disk and reads it back. **It changes the disk.**
//!
//! ```text
//! cargo run -p iscsi-initiator --example read_write -- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what the program is for")]

use std::process::ExitCode;

use bytes::Bytes;
use iscsi_initiator::{Error, Initiator};

/// Offset within a block, so that the disk reads the block first and writes it back.
const OFFSET: u64 = 1021;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: read_write iscsi://HOST/TARGET/LUN");
        return Ok(());
    };
    let initiator = Initiator::new("iqn.2026-01.org.example:read-write")?;
    let session = initiator.connect(&url).await?;
    println!("agreed: {:?}", session.negotiated());

    let disk = session.disk_without_reconnect().await?;
    println!("{} bytes in blocks of {}", disk.capacity(), disk.block_size());

    let greeting = Bytes::from_static(b"hello from far away");
    disk.write_at(OFFSET, vec![greeting.slice(..5), greeting.slice(5..)]).await?;
    disk.flush().await?;
    let back = disk.read_at(OFFSET, greeting.len()).await?;
    println!("read back: {}", String::from_utf8_lossy(&back));
    session.logout().await
}
