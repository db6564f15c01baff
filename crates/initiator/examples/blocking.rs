//! Writes to a disk and reads it back, without async. **It changes the disk.**
//!
//! ```text
//! cargo run -p iscsi-initiator --example blocking -- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0
//! ```
//!
//! To try it: `cargo run -p iscsi-testkit --features serve --example target` serves a disk in memory and
//! prints its URL.
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::error::Error;
use std::io::{Read, Seek, SeekFrom, Write};

use iscsi_initiator::blocking::Initiator;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: blocking iscsi://HOST/TARGET/LUN")?;
    let disk = Initiator::new("iqn.2026-01.org.example:blocking")?.disk(&url)?;
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
    drop(stream);
    Ok(disk.logout()?)
}
