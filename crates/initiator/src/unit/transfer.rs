//! Keeps a command and its data for all its attempts.

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

/// A command with the data that it writes or the buffer that it reads into.
#[derive(Debug)]
pub(crate) struct Transfer {
    cdb: Cdb,
    kind: RequestKind,
    write: Option<Payload>,
    /// Bytes to read; 0 for none.
    read_len: usize,
    /// Buffer for the data to read; with `None` a buffer is allocated when the first data arrives.
    buffer: Option<BytesMut>,
    /// Pool that supplies the buffer if `buffer` is `None`.
    buffers: Option<Arc<dyn BufferPool>>,
    extent: Option<Arc<RangeGuard>>,
    /// Share of the budget that the command holds; `None` if it is not reserved yet.
    permit: Option<Arc<Permit>>,
    /// Whether the result counts only once it is certain, over all connections, which unit executed the command.
    wants_proof: bool,
    /// Whether the data are blocks of the medium, so that a residual says which blocks were not moved. The
    /// residual of a parameter list adds nothing to the status, and is ignored.
    moves_blocks: bool,
}

impl Transfer {
    /// Creates a command that reads up to `len` bytes.
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

    /// Creates a READ of `blocks` blocks.
    pub(crate) fn read(capacity: &Capacity, lba: u64, blocks: u32) -> Result<Self, Error> {
        let cdb = Blocks(capacity).read(lba, blocks).map_err(Cause::from)?;
        Ok(Self::reading(cdb, Blocks(capacity).bytes_of(blocks)))
    }

    /// Sets the pool that supplies the buffer, if the transfer has none.
    pub(crate) fn with_buffers(mut self, buffers: Arc<dyn BufferPool>) -> Self {
        self.buffers = Some(buffers);
        self
    }

    /// Creates a READ of as many blocks as the buffer has room for.
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

    /// Creates a WRITE of whole blocks.
    pub(crate) fn write(capacity: &Capacity, lba: u64, data: Payload) -> Result<Self, Error> {
        let blocks = Blocks(capacity).count(data.len()).map_err(Cause::from)?;
        let cdb = Blocks(capacity).write(lba, blocks).map_err(Cause::from)?;
        Ok(Self { kind: RequestKind::Write, ..Self::changing(cdb, data) })
    }

    /// Creates an UNMAP.
    pub(crate) fn unmap(list: &UnmapList) -> Self {
        let cdb = Cdb::unmap(list.parameter_list_length());
        Self { moves_blocks: false, ..Self::changing(cdb, list.encode().into()) }
    }

    /// Creates a PERSISTENT RESERVE OUT.
    pub(crate) fn reserve_out(change: &PersistentReserveOut) -> Self {
        Self { moves_blocks: false, ..Self::changing(change.cdb(), change.encode().into()) }
    }

    /// Creates a WRITE SAME of one block.
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

    /// Returns the blocks that the command accesses, if they are consecutive.
    pub(crate) fn blocks(&self) -> Option<Range<u64>> {
        // The blocks of UNMAP are in its list.
        let list = || UnmapList::only_extent(self.write.as_ref()?.pages().next()?);
        self.cdb.block_range().or_else(|| self.accesses_blocks().then(list).flatten())
    }

    /// Sets the range that the command locks until the session has finished with it.
    pub(crate) fn within(mut self, extent: &Arc<RangeGuard>) -> Self {
        self.extent = Some(Arc::clone(extent));
        self
    }

    pub(crate) fn extent(&self) -> Option<Arc<RangeGuard>> {
        self.extent.clone()
    }

    /// Sets the share of the budget that the command holds until the session has finished with it.
    pub(crate) fn set_permit(&mut self, permit: Arc<Permit>) {
        self.permit = Some(permit);
    }

    pub(crate) fn permit(&self) -> Option<Arc<Permit>> {
        self.permit.clone()
    }

    /// Makes the result count only once it is certain, over all connections, which unit executed the command.
    /// Needed if the data read are written back, or if the command's success means that writes are on the
    /// medium.
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

    /// Returns the command's name in the standard.
    pub(crate) fn name(&self) -> &'static str {
        self.cdb.operation_name()
    }

    /// Returns the operation code, which identifies the form of the command.
    pub(crate) fn operation_code(&self) -> u8 {
        self.cdb.operation_code()
    }

    /// Returns whether an equivalent form of ten bytes exists.
    pub(crate) fn can_shorten(&self) -> bool {
        self.cdb.in_10_bytes().is_some()
    }

    /// Changes a command of sixteen bytes to the equivalent form of ten bytes, if there is one; returns whether
    /// there is.
    pub(crate) fn shorten(&mut self) -> bool {
        let short = self.cdb.in_10_bytes();
        let is_shorter = short.is_some();
        self.cdb = short.unwrap_or_else(|| self.cdb.clone());
        is_shorter
    }

    /// Returns the kind of request under which the statistics count the command.
    pub(crate) const fn kind(&self) -> RequestKind {
        self.kind
    }

    /// Returns the number of bytes that the command reads or writes.
    pub(crate) fn len(&self) -> usize {
        self.write.as_ref().map_or(self.read_len, Payload::len)
    }

    /// Returns whether the command changes blocks of the unit.
    pub(crate) fn writes(&self) -> bool {
        self.write.is_some() && self.accesses_blocks()
    }

    /// Returns whether the command reads, changes or flushes blocks of the unit.
    pub(crate) fn accesses_blocks(&self) -> bool {
        self.cdb.accesses_blocks()
    }

    /// Returns the command for one attempt, with the buffer. A later attempt reads into a new buffer, unless
    /// this one was [restored](Self::restore).
    pub(crate) fn command(&mut self, lun: Lun) -> Command {
        let mut command = Command::new(lun, self.cdb.clone());
        command.write = self.write.clone();
        if self.read_len > 0 {
            let later = || ReadBuffer::later(self.read_len, self.buffers.clone());
            command.read = Some(self.buffer.take().map_or_else(later, ReadBuffer::from));
        }
        command
    }

    /// Takes the buffer of a failed attempt back for the next one; the unit may have filled only a part.
    pub(crate) fn restore(&mut self, mut buffer: BytesMut) {
        if buffer.capacity() >= self.read_len {
            buffer.resize(self.read_len, 0);
            self.buffer = Some(buffer);
        }
    }
}

/// Number of bytes that a command must move to succeed.
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

    /// Returns the data of a read whose whole buffer must be filled. If the unit has more data than fit
    /// (overflow), the blocks have another size than expected, and the read fails.
    pub(crate) fn all_read(self, completion: Completion) -> Result<BytesMut, Error> {
        let data = completion.data;
        if let Residual::Overflow(more) = completion.residual {
            return Err(self.but_moved(self.len.saturating_add(more as usize)));
        }
        if data.len() == self.len { Ok(data) } else { Err(self.but_moved(data.len())) }
    }

    /// Checks that the unit has taken all data of a write.
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
