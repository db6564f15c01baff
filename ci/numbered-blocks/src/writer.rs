//! Writes to a disk in rounds, each of which a flush ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::block::Block;
use crate::layout::{Layout, mixed};
use crate::lines::say;

/// Writes of a round, at most.
const ROUND: u64 = 8;
/// What lies between two rounds: a guest that never rests dirties a disk faster than a mirror of it can follow.
const REST: Duration = Duration::from_millis(40);

/// One of those that write to a disk; no other writes to the same blocks.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    disk: &'a File,
    layout: Layout,
    /// Which one, from 0 on.
    number: u64,
    /// Writes that are flushed.
    flushed: u64,
    /// The generation of each block, by its number, as the writer has written it last.
    generations: Vec<u64>,
}

impl<'a> Writer<'a> {
    /// A writer of a disk that has what [`crate::make::make`] puts there.
    pub(crate) fn new(disk: &'a File, layout: Layout, number: u64) -> Self {
        let generations = vec![0; usize::try_from(layout.blocks()).unwrap_or(0)];
        Self { disk, layout, number, flushed: 0, generations }
    }

    /// Writes for ever, and says on standard output what is flushed, what has failed, and what was read and is wrong.
    ///
    /// A round of which a write or the flush has failed is repeated, all of it, until it ends well: after a failed flush,
    /// it is unknown which of the writes before it are there, and no later flush reports it.
    pub(crate) fn run(mut self) {
        loop {
            let end = self.flushed + 1 + mixed(self.flushed) % ROUND;
            while let Err((what, error)) = self.round(end) {
                self.say(&format!("error: {what}: {error}"));
                std::thread::sleep(REST);
            }
            self.flushed = end;
            self.say(&format!("flushed {end}"));
            self.look(self.layout.place(self.number, end));
            self.look(self.layout.place(self.number, mixed(end)));
            std::thread::sleep(REST);
        }
    }

    /// Writes what comes after the last flush, up to this generation, and flushes it.
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

    /// Reads a block of the writer, and says so if it is not as it was written last.
    fn look(&mut self, number: u64) {
        let mut block = Block::zeros();
        if let Err(error) = self.disk.read_exact_at(&mut block.0, Layout::offset(number)) {
            return self.say(&format!("error: read: {error}"));
        }
        let expected = self.known(number).copied().unwrap_or_default();
        match block.generation(self.layout, number) {
            Ok(found) if found == expected => {}
            Ok(found) => {
                self.say(&format!("wrong: block {number} has generation {found}, not {expected}"))
            }
            Err(damaged) => self.say(&format!("wrong: block {number} {damaged}")),
        }
    }

    fn known(&mut self, number: u64) -> Option<&mut u64> {
        self.generations.get_mut(usize::try_from(number).ok()?)
    }

    fn say(&self, what: &str) {
        say(&format!("writer {} {what}", self.number));
    }
}
