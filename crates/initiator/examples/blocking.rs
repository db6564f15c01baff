//! Writes to a disk and reads it back, without async. **It changes the disk.** Without a URL the disk is
//! one in memory.
//!
//! ```text
//! cargo run -p iscsi-initiator --example blocking -- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0
//! ```
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::error::Error;
use std::io::{self, Read, Seek, SeekFrom, Write};

use iscsi_initiator::blocking::Initiator;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use tokio::runtime::Runtime;

const TARGET: &str = "iqn.2026-01.org.example:disk";

fn main() -> Result<(), Box<dyn Error>> {
    let embedded = Embedded::start()?;
    let url = std::env::args().nth(1).unwrap_or_else(|| embedded.url());
    let initiator = Initiator::new("iqn.2026-01.org.example:blocking")?;
    let disk = initiator.disk(&url)?;
    println!("{} bytes in blocks of {}", disk.capacity(), disk.block_size());

    disk.write_at(1021, b"hello from far away")?;
    disk.flush()?;
    let mut greeting = [0; 19];
    disk.read_at(1021, &mut greeting)?;
    println!("read back: {}", String::from_utf8_lossy(&greeting));

    let mut stream = disk.stream(65_536);
    for line in 0..1000 {
        writeln!(stream, "line {line}")?;
    }
    stream.flush()?;
    let start = stream.seek(SeekFrom::Current(-9))?;
    let mut last = [0; 8];
    stream.read_exact(&mut last)?;
    println!("at {start}: {}", String::from_utf8_lossy(&last));
    for extent in disk.extents(0, 128 * 1024)? {
        println!("{:>7} bytes from {:>7} on: {:?}", extent.len, extent.offset, extent.state);
    }
    drop(stream);
    Ok(disk.logout()?)
}

/// A target in memory, on a runtime of its own.
struct Embedded {
    server: Server,
    _runtime: Runtime,
}

impl Embedded {
    fn start() -> io::Result<Self> {
        let runtime = Runtime::new()?;
        let target = Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 2048)));
        Ok(Self { server: runtime.block_on(Server::start(target))?, _runtime: runtime })
    }

    fn url(&self) -> String {
        format!("iscsi://{}/{TARGET}/0", self.server.address())
    }
}
