//! Checks the results of a machine against the data of the target: no write is executed over a newer one, and
//! a flush that reports no loss has brought the completed writes onto the medium.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use iscsi_multipath::machine::DiskId;

use crate::world::target::Value;

#[derive(Clone, Debug, Hash)]
struct Block {
    /// Values that the block may hold: the last write that has completed, and the writes to it that were
    /// submitted and have not completed since.
    allowed: Vec<Value>,
    /// Values that the medium of the block may hold, as far as completed flushes have limited them.
    possible: Vec<Value>,
    last_answered: Value,
}

/// A flush that has not ended.
#[derive(Clone, Debug)]
struct Flush {
    name: u32,
    disk: DiskId,
    acceptable: Vec<Vec<Value>>,
    /// The last loss that the disk had reported when the flush was submitted. All flushes in progress report
    /// the same loss, so a repeated report is an error only for a flush that was submitted after the first
    /// report.
    reported: Option<(u64, u32)>,
}

#[derive(Clone, Debug)]
struct Handle {
    disk: DiskId,
    /// Writes up to this position in the order of completion were reported as lost.
    exempt: u64,
    /// Number of completed writes and of faults when the last loss was reported.
    reported: Option<(u64, u32)>,
}

#[derive(Clone, Debug)]
pub struct Oracle {
    blocks: Vec<Block>,
    /// Writes that were submitted and have not ended.
    open: Vec<(Value, Range<usize>)>,
    flushes: Vec<Flush>,
    handles: Vec<Handle>,
    /// For each write, by its number, its position in the order of completion.
    answered: Vec<u64>,
    /// Position of the last completed write in the order of completion.
    answers: u64,
    /// Value of `answers` when the last flush began.
    at_flush: u64,
    /// Number of flushes that have begun.
    begun: u64,
    pub faults: u32,
}

impl Oracle {
    pub fn new(blocks: usize) -> Self {
        let block = Block { allowed: vec![0], possible: vec![0], last_answered: 0 };
        Self {
            blocks: vec![block; blocks],
            open: Vec::new(),
            flushes: Vec::new(),
            handles: Vec::new(),
            answered: vec![0],
            answers: 1,
            at_flush: 0,
            begun: 0,
            faults: 0,
        }
    }

    pub fn attach(&mut self, disk: DiskId) {
        self.handles.push(Handle { disk, exempt: 0, reported: None });
    }

    pub fn write_submitted(&mut self, value: Value, range: Range<usize>) {
        for block in range.clone() {
            self.blocks[block].allowed.push(value);
            self.blocks[block].possible.push(value);
            self.flushes.iter_mut().for_each(|flush| flush.acceptable[block].push(value));
        }
        self.open.push((value, range));
    }

    /// Checks that a copy of a write, which the known unit has executed, did not overwrite a newer write.
    pub fn executed(&self, value: Value, range: Range<usize>) -> Result<(), String> {
        for block in range {
            if !self.blocks[block].allowed.contains(&value) {
                let last = self.blocks[block].last_answered;
                return Err(format!(
                    "a copy of write {value} is executed over write {last} of block {block}, which was answered"
                ));
            }
        }
        Ok(())
    }

    pub fn write_answered(&mut self, value: Value) {
        let Some(at) = self.open.iter().position(|(other, _)| *other == value) else { return };
        let (_, range) = self.open.remove(at);
        let place = value as usize;
        self.answered.resize(self.answered.len().max(place + 1), 0);
        self.answers += 1;
        self.answered[place] = self.answers;
        for block in range {
            let open = &self.open;
            let record = &mut self.blocks[block];
            record
                .allowed
                .retain(|other| *other == value || open.iter().any(|(it, _)| it == other));
            record.last_answered = value;
        }
    }

    /// Records a write that has failed or was cancelled. Its value stays allowed, because the unit may have
    /// executed the write.
    pub fn write_ended(&mut self, value: Value) {
        self.open.retain(|(other, _)| *other != value);
    }

    pub fn flush_submitted(&mut self, name: u32, disk: DiskId) {
        let Handle { exempt, reported, .. } = *self.handle(disk);
        let acceptable = |block: &Block| {
            let answered = self.answered[block.last_answered as usize];
            if answered <= exempt { block.possible.clone() } else { block.allowed.clone() }
        };
        let acceptable = self.blocks.iter().map(acceptable).collect();
        self.flushes.push(Flush { name, disk, acceptable, reported });
    }

    /// Records that the machine has begun `number` flushes so far.
    pub fn flush_begun(&mut self, number: u64) {
        if number > self.begun {
            (self.begun, self.at_flush) = (number, self.answers);
        }
    }

    /// Checks the medium when a flush has completed without a loss.
    pub fn flushed(&mut self, name: u32, medium: &[Value]) -> Result<(), String> {
        let Some(flush) = self.take_flush(name) else { return Ok(()) };
        for (block, value) in medium.iter().enumerate() {
            if !flush.acceptable[block].contains(value) {
                let expected = &flush.acceptable[block];
                return Err(format!(
                    "a flush is answered, and block {block} of the medium holds write {value}, not one of {expected:?}"
                ));
            }
            self.blocks[block].possible.retain(|other| flush.acceptable[block].contains(other));
        }
        Ok(())
    }

    /// Checks that a flush may report a loss: a fault has happened, and the same loss was not reported
    /// before.
    pub fn lost(&mut self, name: u32) -> Result<(), String> {
        let Some(flush) = self.take_flush(name) else { return Ok(()) };
        let (at_flush, faults) = (self.at_flush, self.faults);
        if faults == 0 {
            return Err("a flush reports a loss, although nothing has happened".to_owned());
        }
        let answers = self.answers;
        let handle = self.handle_mut(flush.disk);
        if flush.reported == Some((answers, faults)) {
            return Err("a loss is reported twice to one disk".to_owned());
        }
        // Writes that completed before the flush began are now reported: their loss need not be reported again. The same
        // fault may lose a later write, whose loss must be reported.
        handle.reported = Some((at_flush, faults));
        handle.exempt = handle.exempt.max(at_flush);
        Ok(())
    }

    pub fn flush_ended(&mut self, name: u32) {
        self.take_flush(name);
    }

    fn take_flush(&mut self, name: u32) -> Option<Flush> {
        let at = self.flushes.iter().position(|flush| flush.name == name)?;
        Some(self.flushes.remove(at))
    }

    fn handle(&self, disk: DiskId) -> &Handle {
        self.handles.iter().find(|handle| handle.disk == disk).expect("a disk that is attached")
    }

    fn handle_mut(&mut self, disk: DiskId) -> &mut Handle {
        self.handles.iter_mut().find(|handle| handle.disk == disk).expect("a disk that is attached")
    }

    pub fn fingerprint(&self, state: &mut impl Hasher) {
        (&self.blocks, &self.open).hash(state);
        for flush in &self.flushes {
            (flush.name, &flush.acceptable).hash(state);
            (flush.reported == Some((self.answers, self.faults))).hash(state);
        }
        for handle in &self.handles {
            for block in &self.blocks {
                let answered = self.answered[block.last_answered as usize];
                (answered <= handle.exempt, answered <= self.at_flush).hash(state);
            }
            (handle.reported == Some((self.answers, self.faults))).hash(state);
        }
        (self.faults > 0).hash(state);
    }
}
