//! Faults: what goes wrong, when, and how often.
//!
//! ```
//! use std::time::Duration;
//! use iscsi_testkit::fault::Fault;
//! use iscsi_testkit::scsi::Access;
//!
//! // Blocks 100 to 107 of unit 0 cannot be read.
//! let bad = Fault::medium_error(100..108).on_unit(0);
//! // The first three commands that reach block 7 end with BUSY.
//! let busy = Fault::busy(7..=7, 3);
//! // Every UNMAP is answered two seconds late.
//! let slow = Fault::delay(.., Duration::from_secs(2)).on_access(Access::Unmap);
//! // The next write anywhere fails, and no later one.
//! let full = Fault::no_space(..).times(1);
//! ```
//!
//! Faults of one command apply in the order in which they were added, up to the first one that ends the
//! command. So if a delay was added before BUSY, the command ends with BUSY after the delay; if the delay was
//! added after BUSY, it has no effect.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use bytes::Bytes;

use crate::opcode::Opcode;
use crate::pdu::Pdu;
use crate::scsi::{Access, Sense, status};

/// An error that the target makes: at a PDU or a byte of a connection, or at a command that reaches certain
/// blocks of a unit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// The connection, counted from 0 in the order of [`accept`](crate::target::Target::accept);
    /// `None` is any.
    pub connection: Option<usize>,
    /// The trigger.
    pub trigger: Trigger,
    /// The effect.
    pub effect: Effect,
    /// The number of commands that the fault still affects; `None` is all of them. A fault of a PDU or of a
    /// byte happens once, whatever this field says.
    pub times: Option<u32>,
}

/// The event at which a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// The target is about to send the PDU with this number; the number counts from 0 among the PDUs with this
    /// operation code (`None`: among all PDUs).
    Sending(Option<Opcode>, u32),
    /// The PDU of the initiator with this number has arrived; the number counts from 0 among the PDUs with this
    /// operation code (`None`: among all PDUs).
    Receiving(Option<Opcode>, u32),
    /// The target has sent this number of bytes; the rest is lost. Only for [`Effect::Close`].
    SentBytes(u64),
    /// The initiator has sent more than this number of bytes; the excess bytes are lost. Only for
    /// [`Effect::Close`].
    ReceivedBytes(u64),
    /// A SCSI command reaches certain blocks.
    Command(Blocks),
}

/// Blocks of a unit, and the kind of command that a fault at these blocks affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocks {
    /// The unit; `None` is any.
    pub unit: Option<u16>,
    /// The access to the blocks; `None` is any.
    pub access: Option<Access>,
    /// The first block.
    pub first: u64,
    /// The last block.
    pub last: u64,
}

/// Effects of a fault.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// The connection is closed, and the PDU is lost; a command is not executed.
    Close,
    /// The PDU is lost; its `StatSN` stays consumed.
    Swallow,
    /// The PDU is sent twice. Sending only.
    Duplicate,
    /// The PDU is sent with a wrong header digest. Sending only, with header digests.
    CorruptHeaderDigest,
    /// The PDU is sent with a wrong data digest. Sending only, with data digests.
    CorruptDataDigest,
    /// Another PDU is sent first, unchanged. Sending only.
    Before(Box<Pdu>),
    /// One byte of the header is replaced.
    SetByte {
        /// Offset in the header.
        at: usize,
        /// The new value.
        value: u8,
    },
    /// Four bytes of the header are replaced.
    SetWord {
        /// Offset in the header.
        at: usize,
        /// The new value.
        value: u32,
    },
    /// A number is added to four bytes of the header, modulo 2^32.
    AddWord {
        /// Offset in the header.
        at: usize,
        /// The number that is added.
        value: u32,
    },
    /// The data segment is replaced.
    SetData(Bytes),
    /// The PDU is sent after this number of later PDUs, with the `StatSN` of its original place. Sending only.
    Behind(u32),
    /// `StatSN` is increased by this number, from this PDU on. Sending only.
    SkipStatSn(u32),
    /// The command is not executed and ends with CHECK CONDITION. The INFORMATION field holds the first bad block
    /// that the command reaches, unless the sense data name one. Commands only.
    Sense(Sense),
    /// The command ends with this sense data, and the data of a volatile cache for the blocks of the command
    /// are lost: a unit need not keep data that it could not write. Commands only.
    LoseCached(Sense),
    /// The command is not executed and ends with this SCSI status. Commands only.
    Status(u8),
    /// The read data and the status are delayed by this time. Commands only. The time is the time that is
    /// passed to [`Target::advance`](crate::target::Target::advance).
    Delay(Duration),
    /// The command is executed this time after its data have arrived, and then its response is sent. The
    /// command is executed even if its connection is lost meanwhile, unless its nexus is reinstated or logs
    /// out, or a task management function ends the command. Only for commands that write, including WRITE
    /// SAME and UNMAP; other commands are not affected, and do not count as one of `times`. The time is the
    /// time that is passed to [`Target::advance`](crate::target::Target::advance).
    ExecuteLate(Duration),
    /// The first byte of the first block is inverted on its way from or to the disk, and the
    /// command ends with GOOD. Commands that read or write only.
    InvertByte,
}

impl Blocks {
    /// Selects blocks of any unit, and commands of any kind.
    #[must_use]
    pub fn of(range: impl RangeBounds<u64>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let last = match range.end_bound() {
            Bound::Included(last) => *last,
            Bound::Excluded(end) => end.saturating_sub(1),
            Bound::Unbounded => u64::MAX,
        };
        Self { unit: None, access: None, first, last }
    }
}

impl Fault {
    /// Creates a fault on any connection, for each command that triggers it.
    #[must_use]
    pub const fn new(trigger: Trigger, effect: Effect) -> Self {
        Self { connection: None, trigger, effect, times: None }
    }

    /// Creates a fault with `effect` on commands that reach one of the blocks in `range`.
    #[must_use]
    pub fn on_blocks(range: impl RangeBounds<u64>, effect: Effect) -> Self {
        Self::new(Trigger::Command(Blocks::of(range)), effect)
    }

    /// Makes blocks unreadable: UNRECOVERED READ ERROR.
    #[must_use]
    pub fn medium_error(range: impl RangeBounds<u64>) -> Self {
        Self::sense(range, Sense::READ_ERROR).on_access(Access::Read)
    }

    /// Makes blocks unwritable: WRITE ERROR.
    #[must_use]
    pub fn write_error(range: impl RangeBounds<u64>) -> Self {
        Self::sense(range, Sense::WRITE_ERROR).on_access(Access::Write)
    }

    /// Makes SYNCHRONIZE CACHE of blocks in `range` end with WRITE ERROR. If `loses`, the data of the volatile
    /// cache are lost for all blocks that the command reaches.
    #[must_use]
    pub fn flush_error(range: impl RangeBounds<u64>, loses: bool) -> Self {
        let sense = Sense::WRITE_ERROR;
        let effect = if loses { Effect::LoseCached(sense) } else { Effect::Sense(sense) };
        Self::on_blocks(range, effect).on_access(Access::SynchronizeCache)
    }

    /// Ends commands that reach blocks in `range` with CHECK CONDITION.
    #[must_use]
    pub fn sense(range: impl RangeBounds<u64>, sense: Sense) -> Self {
        Self::on_blocks(range, Effect::Sense(sense))
    }

    /// Ends the next `times` commands that reach blocks in `range` with BUSY.
    #[must_use]
    pub fn busy(range: impl RangeBounds<u64>, times: u32) -> Self {
        Self::on_blocks(range, Effect::Status(status::BUSY)).times(times)
    }

    /// Makes writes to blocks of a thin unit fail for lack of space: DATA PROTECT, SPACE ALLOCATION FAILED WRITE
    /// PROTECT.
    #[must_use]
    pub fn no_space(range: impl RangeBounds<u64>) -> Self {
        Self::sense(range, Sense::NO_SPACE).on_access(Access::Write)
    }

    /// Ends the next `times` commands that reach blocks in `range` with TASK SET FULL.
    #[must_use]
    pub fn task_set_full(range: impl RangeBounds<u64>, times: u32) -> Self {
        Self::on_blocks(range, Effect::Status(status::TASK_SET_FULL)).times(times)
    }

    /// Delays the responses to commands that reach blocks in `range`.
    #[must_use]
    pub fn delay(range: impl RangeBounds<u64>, delay: Duration) -> Self {
        Self::on_blocks(range, Effect::Delay(delay))
    }

    /// Delays the execution of commands that write to blocks in `range`. The commands are executed even if
    /// their connection is lost.
    #[must_use]
    pub fn execute_late(range: impl RangeBounds<u64>, late: Duration) -> Self {
        Self::on_blocks(range, Effect::ExecuteLate(late))
    }

    /// Breaks the connection when a command reaches one of the blocks in `range`.
    #[must_use]
    pub fn drop_connection(range: impl RangeBounds<u64>) -> Self {
        Self::on_blocks(range, Effect::Close)
    }

    /// Makes one byte wrong in data that are read from blocks in `range` or written to them, without a report.
    #[must_use]
    pub fn wrong_byte(range: impl RangeBounds<u64>) -> Self {
        Self::on_blocks(range, Effect::InvertByte)
    }

    /// Limits the fault to one unit.
    #[must_use]
    pub const fn on_unit(mut self, number: u16) -> Self {
        if let Trigger::Command(blocks) = &mut self.trigger {
            blocks.unit = Some(number);
        }
        self
    }

    /// Limits the fault to one kind of command.
    #[must_use]
    pub const fn on_access(mut self, access: Access) -> Self {
        if let Trigger::Command(blocks) = &mut self.trigger {
            blocks.access = Some(access);
        }
        self
    }

    /// Limits the fault to the next `times` commands.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Creates a fault at the n-th PDU (from 0) of the target with this operation code, on any connection.
    #[must_use]
    pub const fn sending(opcode: Opcode, nth: u32, effect: Effect) -> Self {
        Self::new(Trigger::Sending(Some(opcode), nth), effect)
    }

    /// Creates a fault at the n-th PDU (from 0) of the initiator with this operation code, on any connection.
    #[must_use]
    pub const fn receiving(opcode: Opcode, nth: u32, effect: Effect) -> Self {
        Self::new(Trigger::Receiving(Some(opcode), nth), effect)
    }

    /// Breaks a connection after the target has sent `bytes` bytes.
    #[must_use]
    pub const fn cut_after_sent(bytes: u64) -> Self {
        Self::new(Trigger::SentBytes(bytes), Effect::Close)
    }

    /// Breaks a connection when the initiator sends more than `bytes` bytes.
    #[must_use]
    pub const fn cut_after_received(bytes: u64) -> Self {
        Self::new(Trigger::ReceivedBytes(bytes), Effect::Close)
    }

    /// Limits the fault to one connection, counted from 0.
    #[must_use]
    pub const fn on_connection(mut self, connection: usize) -> Self {
        self.connection = Some(connection);
        self
    }

    /// Puts the iSCSI response code `code` into the SCSI response with the number `nth`. A code other than 0
    /// means failure.
    #[must_use]
    pub const fn failed_response(nth: u32, code: u8) -> Self {
        Self::sending(Opcode::ScsiResponse, nth, Effect::SetByte { at: 2, value: code })
    }

    /// Makes the `DataSN` of the Data-In with the number `nth` one too large.
    #[must_use]
    pub const fn data_sn_gap(nth: u32) -> Self {
        Self::sending(Opcode::DataIn, nth, Effect::AddWord { at: 36, value: 1 })
    }

    /// Makes the R2T with the number `nth` request data at `offset`.
    #[must_use]
    pub const fn r2t_offset(nth: u32, offset: u32) -> Self {
        Self::sending(Opcode::R2t, nth, Effect::SetWord { at: 40, value: offset })
    }

    /// Puts the initiator task tag `itt` into the n-th PDU with this operation code.
    #[must_use]
    pub const fn wrong_itt(opcode: Opcode, nth: u32, itt: u32) -> Self {
        Self::sending(opcode, nth, Effect::SetWord { at: 16, value: itt })
    }
}
