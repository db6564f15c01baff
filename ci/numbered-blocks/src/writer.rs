//! Writes to a disk in rounds. Each round ends with a flush.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::block::Block;
use crate::layout::{Layout, mixed};
use crate::lines::print_line;

/// Largest number of writes in a round.
const ROUND: u64 = 8;
/// Pause between two rounds: a guest without pauses dirties a disk faster than a mirror can follow.
const REST: Duration = Duration::from_millis(40);

/// A writer of a disk. No other writer writes to its blocks.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    disk: &'a File,
    layout: Layout,
    /// Number of the writer, from 0 on.
    number: u64,
    /// Number of flushed writes.
    flushed: u64,
    /// The generation that the writer has last written to each block, by block number.
    generations: Vec<u64>,
}

impl<'a> Writer<'a> {
    /// Returns a writer of a disk that [`crate::make::make`] has filled.
    pub(crate) fn new(disk: &'a File, layout: Layout, number: u64) -> Self {
        let generations = vec![0; usize::try_from(layout.blocks()).unwrap_or(0)];
        Self { disk, layout, number, flushed: 0, generations }
    }

    /// Writes forever. Prints on standard output which writes are flushed, which requests have failed, and
    /// which reads returned wrong data.
    ///
    /// If a write or the flush of a round fails, the whole round is repeated until it succeeds. After a
    /// failed flush, it is unknown which of the writes before it are on the disk, and a later flush does not
    /// report that either.
    pub(crate) fn run(mut self) {
        loop {
            let end = self.flushed + 1 + mixed(self.flushed) % ROUND;
            while let Err((what, error)) = self.round(end) {
                self.print_line(&format!("error: {what}: {error}"));
                std::thread::sleep(REST);
            }
            self.flushed = end;
            self.print_line(&format!("flushed {end}"));
            self.check_block(self.layout.place(self.number, end));
            self.check_block(self.layout.place(self.number, mixed(end)));
            std::thread::sleep(REST);
        }
    }

    /// Writes the generations after the last flush up to `end`, and flushes them.
    fn round(&mut self, end: u64) -> Result<(), (&'static str, io::Error)> {
        for generation in self.flushed + 1..=end {
            let number = self.layout.place(self.number, generation);
            let block = Block::new(number, generation);
            let written = self.disk.write_all_at(&block.0, Layout::offset(number));
            written.map_err(|error| ("write", error))?;
            if let Some(known) = self.known(number) {
                *known = generation;
            }
        }
        self.disk.sync_data().map_err(|error| ("flush", error))
    }

    /// Reads a block of the writer, and reports the block if its data is not what the writer has last written.
    fn check_block(&mut self, number: u64) {
        let mut block = Block::zeros();
        if let Err(error) = self.disk.read_exact_at(&mut block.0, Layout::offset(number)) {
            return self.print_line(&format!("error: read: {error}"));
        }
        let expected = self.known(number).copied().unwrap_or_default();
        match block.generation(self.layout, number) {
            Ok(found) if found == expected => {}
            Ok(found) => self.print_line(&format!(
                "wrong: block {number} has generation {found}, not {expected}"
            )),
            Err(damaged) => self.print_line(&format!("wrong: block {number} {damaged}")),
        }
    }

    fn known(&mut self, number: u64) -> Option<&mut u64> {
        self.generations.get_mut(usize::try_from(number).ok()?)
    }

    fn print_line(&self, what: &str) {
        print_line(&format!("writer {} {what}", self.number));
    }
}
