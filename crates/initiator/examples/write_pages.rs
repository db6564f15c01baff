//! Writes lists of 4 KiB pages, from the start of a disk on. **It overwrites the disk.**
//!
//! ```text
//! cargo run --release -p iscsi-initiator --example write_pages -- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 64
//! ```
//!
//! The pages go to the socket without a copy, many in one system call:
//! `strace -f -c -e trace=writev,sendmsg` counts them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what the program is for")]

use std::process::ExitCode;

use bytes::Bytes;
use iscsi_initiator::{Error, Initiator};
use tokio::task::JoinSet;

const PAGE: usize = 4096;
/// Number of 4 KiB pages of one write: 1 MiB in total.
const PAGES: usize = 256;
/// Number of concurrent writes.
const DEPTH: usize = 16;

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
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(Ok(mebibytes))) =
        (arguments.next(), arguments.next().map(|count| count.parse::<u64>()))
    else {
        eprintln!("usage: write_pages iscsi://HOST/TARGET/LUN MEBIBYTES");
        return Ok(());
    };
    let initiator = Initiator::new("iqn.2026-01.org.example:write-pages")?;
    let session = initiator.connect(&url).await?;
    let disk = session.disk_without_reconnect().await?;

    let mut writes = JoinSet::new();
    for number in 0..mebibytes {
        while writes.len() >= DEPTH {
            ended(writes.join_next().await)?;
        }
        let disk = disk.clone();
        let pages: Vec<Bytes> = (0..PAGES).map(|_| Bytes::from(vec![0x5a; PAGE])).collect();
        writes.spawn(async move { disk.write_at(number << 20, pages).await });
    }
    while !writes.is_empty() {
        ended(writes.join_next().await)?;
    }
    disk.flush().await?;
    println!("wrote {mebibytes} MiB in lists of {PAGES} pages; {:?}", session.stats());
    session.logout().await
}

/// Returns the result of one write. If its task panicked, panics as well. No code cancels the task.
fn ended(joined: Option<Result<Result<(), Error>, tokio::task::JoinError>>) -> Result<(), Error> {
    match joined {
        Some(Ok(result)) => result,
        Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        None => Ok(()),
    }
}
