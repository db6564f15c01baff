//! A command and its data, as often as it must be sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use iscsi_multipath::{Blocks, Capacity};
use iscsi_pdu::Residual;
use iscsi_pdu::scsi::reservation::PersistentReserveOut;
use iscsi_pdu::scsi::{Cdb, Lun, Operation, UnmapList, WriteSameFlags};
use iscsi_session::{BufferPool, Command, Completion, Payload, ReadBuffer};

use crate::error::{Cause, Error, UnitCause};
use crate::state::budget::Permit;
use crate::state::counters::RequestKind;
use crate::state::range_locks::RangeGuard;

/// A command with the data it writes or the room it reads into.
#[derive(Debug)]
pub(crate) struct Transfer {
    cdb: Cdb,
    kind: RequestKind,
    write: Option<Payload>,
    /// Bytes to read; 0 for none.
    read_len: usize,
    /// The buffer for them; taken when the first of them comes if there is none yet.
    buffer: Option<BytesMut>,
    /// Where it comes from then.
    buffers: Option<Arc<dyn BufferPool>>,
    extent: Option<Arc<RangeGuard>>,
    /// Its share of what may be under way, if it was taken already.
    permit: Option<Arc<Permit>>,
    /// Whether its answer counts only once it is certain, over all connections, which unit gave it.
    wants_proof: bool,
    /// Whether what is moved are blocks of the medium, so that a residual tells which were not: of a
    /// parameter list it tells nothing that the status does not.
    moves_blocks: bool,
}

impl Transfer {
    /// A question whose answer has up to `len` bytes.
    pub(crate) const fn query(cdb: Cdb, len: usize) -> Self {
        Self {
            cdb,
            kind: RequestKind::Other,
            write: None,
            read_len: len,
            buffer: None,
            buffers: None,
            extent: None,
            permit: None,
            wants_proof: false,
            moves_blocks: true,
        }
    }

    /// READ of so many blocks.
    pub(crate) fn read(capacity: &Capacity, lba: u64, blocks: u32) -> Result<Self, Error> {
        let cdb = Blocks(capacity).read(lba, blocks).map_err(Cause::from)?;
        Ok(Self::reading(cdb, Blocks(capacity).bytes_of(blocks)))
    }

    /// From where its buffer shall come, if it has none.
    pub(crate) fn with_buffers(mut self, buffers: Arc<dyn BufferPool>) -> Self {
        self.buffers = Some(buffers);
        self
    }

    /// READ of as many blocks as the buffer has room for.
    pub(crate) fn read_into(
        capacity: &Capacity,
        lba: u64,
        buffer: BytesMut,
    ) -> Result<Self, Error> {
        let blocks = Blocks(capacity).count(buffer.len()).map_err(Cause::from)?;
        let cdb = Blocks(capacity).read(lba, blocks).map_err(Cause::from)?;
        let len = buffer.len();
        Ok(Self { buffer: Some(buffer), ..Self::reading(cdb, len) })
    }

    fn reading(cdb: Cdb, len: usize) -> Self {
        Self { kind: RequestKind::Read, ..Self::query(cdb, len) }
    }

    /// WRITE of whole blocks.
    pub(crate) fn write(capacity: &Capacity, lba: u64, data: Payload) -> Result<Self, Error> {
        let blocks = Blocks(capacity).count(data.len()).map_err(Cause::from)?;
        let cdb = Blocks(capacity).write(lba, blocks).map_err(Cause::from)?;
        Ok(Self { kind: RequestKind::Write, ..Self::changing(cdb, data) })
    }

    /// UNMAP.
    pub(crate) fn unmap(list: &UnmapList) -> Self {
        let cdb = Cdb::unmap(list.parameter_list_length());
        Self { moves_blocks: false, ..Self::changing(cdb, list.encode().into()) }
    }

    /// PERSISTENT RESERVE OUT.
    pub(crate) fn reserve_out(change: &PersistentReserveOut) -> Self {
        Self { moves_blocks: false, ..Self::changing(change.cdb(), change.encode().into()) }
    }

    /// WRITE SAME of one block.
    pub(crate) fn write_same(lba: u64, blocks: u32, block: Payload, flags: WriteSameFlags) -> Self {
        Self::changing(Cdb::write_same_16(lba, blocks, flags), block)
    }

    const fn changing(cdb: Cdb, data: Payload) -> Self {
        Self {
            cdb,
            kind: RequestKind::Other,
            write: Some(data),
            read_len: 0,
            buffer: None,
            buffers: None,
            extent: None,
            permit: None,
            wants_proof: false,
            moves_blocks: true,
        }
    }

    /// The blocks that it is about, if they are in a row.
    pub(crate) fn blocks(&self) -> Option<Range<u64>> {
        // Those of UNMAP are in its list.
        let list = || UnmapList::only_extent(self.write.as_ref()?.pages().next()?);
        self.cdb.block_range().or_else(|| self.accesses_blocks().then(list).flatten())
    }

    /// The range that the command keeps taken until the session has finished with it.
    pub(crate) fn within(mut self, extent: &Arc<RangeGuard>) -> Self {
        self.extent = Some(Arc::clone(extent));
        self
    }

    pub(crate) fn extent(&self) -> Option<Arc<RangeGuard>> {
        self.extent.clone()
    }

    /// The share of what may be under way that it keeps taken until the session has finished with it.
    pub(crate) fn set_permit(&mut self, permit: Arc<Permit>) {
        self.permit = Some(permit);
    }

    pub(crate) fn permit(&self) -> Option<Arc<Permit>> {
        self.permit.clone()
    }

    /// Its answer counts only once it is certain, over all connections, which unit gave it: a write will
    /// bring back what is read, or it vouches for what was written.
    pub(crate) const fn with_proof(mut self) -> Self {
        self.wants_proof = true;
        self
    }

    pub(crate) const fn wants_proof(&self) -> bool {
        self.wants_proof
    }

    pub(crate) const fn cdb(&self) -> &Cdb {
        &self.cdb
    }

    /// The command's name in the standard.
    pub(crate) fn name(&self) -> &'static str {
        self.cdb.operation_name()
    }

    /// The operation code, by which a unit knows the form of the command or not.
    pub(crate) fn operation_code(&self) -> u8 {
        self.cdb.operation_code()
    }

    /// Whether there is a form of ten bytes that says the same.
    pub(crate) fn can_shorten(&self) -> bool {
        self.cdb.in_10_bytes().is_some()
    }

    /// Takes the form of ten bytes for a command of sixteen, if there is one that says the same.
    pub(crate) fn shorten(&mut self) -> bool {
        let short = self.cdb.in_10_bytes();
        let is_shorter = short.is_some();
        self.cdb = short.unwrap_or_else(|| self.cdb.clone());
        is_shorter
    }

    /// What it counts as.
    pub(crate) const fn kind(&self) -> RequestKind {
        self.kind
    }

    /// Bytes to be moved.
    pub(crate) fn len(&self) -> usize {
        self.write.as_ref().map_or(self.read_len, Payload::len)
    }

    /// Whether the command changes blocks of the unit.
    pub(crate) fn writes(&self) -> bool {
        self.write.is_some() && self.accesses_blocks()
    }

    /// Whether the command reads, changes or flushes blocks of the unit.
    pub(crate) fn accesses_blocks(&self) -> bool {
        self.cdb.accesses_blocks()
    }

    /// The command for one try. Another one reads into a buffer of its own, unless this one's was [restored](Self::restore).
    pub(crate) fn command(&mut self, lun: Lun) -> Command {
        let mut command = Command::new(lun, self.cdb.clone());
        command.write = self.write.clone();
        if self.read_len > 0 {
            let later = || ReadBuffer::later(self.read_len, self.buffers.clone());
            command.read = Some(self.buffer.take().map_or_else(later, ReadBuffer::from));
        }
        command
    }

    /// Takes the buffer back for another try, if there was one; the unit may have filled less than all of it.
    pub(crate) fn restore(&mut self, mut buffer: BytesMut) {
        if buffer.capacity() >= self.read_len {
            buffer.resize(self.read_len, 0);
            self.buffer = Some(buffer);
        }
    }
}

/// What a command must have moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    operation: Operation,
    len: usize,
    moves_blocks: bool,
}

impl Expected {
    pub(crate) fn of(transfer: &Transfer) -> Self {
        let (operation, len) = (transfer.cdb.operation(), transfer.len());
        Self { operation, len, moves_blocks: transfer.moves_blocks }
    }

    /// The data of a read whose whole buffer must be filled. Blocks of which the unit has more than
    /// fit are not those that were meant.
    pub(crate) fn all_read(self, completion: Completion) -> Result<BytesMut, Error> {
        let data = completion.data;
        if let Residual::Overflow(more) = completion.residual {
            return Err(self.but_moved(self.len.saturating_add(more as usize)));
        }
        if data.len() == self.len { Ok(data) } else { Err(self.but_moved(data.len())) }
    }

    /// All data of a write must have been taken.
    pub(crate) fn all_written(self, completion: &Completion) -> Result<(), Error> {
        match completion.residual {
            _ if !self.moves_blocks => Ok(()),
            Residual::None => Ok(()),
            Residual::Underflow(left) => {
                Err(self.but_moved(self.len.saturating_sub(left as usize)))
            }
            Residual::Overflow(more) => Err(self.but_moved(self.len.saturating_add(more as usize))),
        }
    }

    fn but_moved(self, moved: usize) -> Error {
        let command = self.operation.name();
        Error::from(UnitCause::Length { command, expected: self.len, moved })
    }
}
