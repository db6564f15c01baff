//! Writes numbered blocks to the disk of a guest, and checks which of them a disk has.
//!
//! ```text
//! numbered-blocks make FILE MIB
//! numbered-blocks write DEVICE
//! numbered-blocks check FILE FLUSHED...
//! ```
//!
//! `make` makes the disk that `write` needs: half of it data, half of it holes. `write` never ends: several
//! concurrent writers write blocks at pseudo-random places, several between two flushes. After each successful
//! flush, a writer prints a line such as `writer 2 flushed 517`. `check` takes the last such number of each
//! writer. It fails on a disk that lacks a flushed block, or has a block that was never written.

mod block;
mod check;
mod layout;
mod lines;
mod make;
mod writer;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

use layout::{Layout, WRITERS};
use lines::{complain, print_line};
use writer::Writer;

const USAGE: &str = "usage: numbered-blocks make FILE MIB | write DEVICE | check FILE FLUSHED...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["make", file, mib] => match mib.parse::<u32>() {
            Ok(mib) => {
                File::create_new(file).and_then(|file| make::make(&file, u64::from(mib) << 20))
            }
            Err(_) => return usage(),
        },
        ["write", device] => write(device),
        ["check", file, flushed @ ..] => match numbers(flushed) {
            Some(flushed) => check(file, flushed),
            None => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("numbered-blocks: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn numbers(words: &[&str]) -> Option<[u64; WRITERS]> {
    let numbers: Vec<u64> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

fn write(device: &str) -> io::Result<()> {
    let disk = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(device)?;
    let layout = Layout::of(&disk)?;
    std::thread::scope(|scope| {
        for number in (0..).take(WRITERS) {
            let writer = Writer::new(&disk, layout, number);
            scope.spawn(|| writer.run());
        }
    });
    Ok(())
}

fn check(file: &str, flushed: [u64; WRITERS]) -> io::Result<()> {
    let findings = check::check(&File::open(file)?, flushed)?;
    for complaint in &findings.complaints {
        complain(complaint);
    }
    let check::Findings { untouched, flushed, later, wrong, .. } = findings;
    print_line(&format!(
        "{untouched} blocks as at first, {flushed} as flushed, {later} later, {wrong} wrong"
    ));
    if wrong == 0 { Ok(()) } else { Err(io::Error::other("the disk is not what it must be")) }
}

fn usage() -> ExitCode {
    complain(USAGE);
    ExitCode::from(2)
}
