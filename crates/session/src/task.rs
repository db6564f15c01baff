//! Tasks: requests that the session has not finished.

pub(crate) mod command;
pub(crate) mod payload;
pub(crate) mod queue;
mod ranges;
pub(crate) mod read;
pub(crate) mod read_buffer;
pub(crate) mod scsi;
pub(crate) mod set;
pub(crate) mod text;
pub(crate) mod write;

use std::time::Instant;

use bytes::Bytes;
use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, CmdSn, Itt, TaskFunction};

use scsi::ScsiTask;
use text::TextTask;
use write::WriteTransfer;

use crate::timer::Timer;

/// A task and its state.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) kind: TaskKind,
    /// The connection on which all PDUs of the task are sent (RFC 7143 §4.2.5.1); `None` before the first PDU
    /// is in wire order.
    allegiance: Option<Cid>,
    /// The CmdSN of the task's first PDU.
    cmd_sn: Option<CmdSn>,
    deadline: Option<Instant>,
    /// Write data that the target may wait for, bytes; zero before the first PDU is in wire order.
    outstanding: u64,
}

/// The kinds of task.
#[derive(Debug)]
pub(crate) enum TaskKind {
    Scsi(ScsiTask),
    Management(Management),
    Text(Box<TextTask>),
    Ping(Ping),
    Logout(Logout),
}

/// A task management function (RFC 7143 §11.5).
#[derive(Clone, Debug)]
pub(crate) struct Management {
    pub(crate) function: TaskFunction,
    pub(crate) lun: Lun,
    pub(crate) referenced: Option<Itt>,
    /// Whether the session itself requested the function, so that no caller waits for the response.
    pub(crate) internal: bool,
    /// The CmdSN that a refused or aborted request may have left as a gap; `None` if there is no gap to fill.
    pub(crate) gap: Option<CmdSn>,
    /// Whether the request waits for the data of the write that it aborts.
    pub(crate) after_data: bool,
}

impl Management {
    /// Returns the task to abort, if the request is an ABORT TASK.
    pub(crate) fn aborts(&self) -> Option<Itt> {
        self.referenced.filter(|_| self.function == TaskFunction::AbortTask)
    }

    /// Returns whether the function ends all earlier tasks for a unit (RFC 7143 §11.5.1).
    pub(crate) fn ends_all_of(&self, lun: Lun) -> bool {
        match self.function {
            TaskFunction::AbortTaskSet
            | TaskFunction::ClearTaskSet
            | TaskFunction::LogicalUnitReset => lun == self.lun,
            TaskFunction::TargetWarmReset
            | TaskFunction::TargetColdReset
            | TaskFunction::ItNexusReset => true,
            TaskFunction::AbortTask
            | TaskFunction::ClearAca
            | TaskFunction::TaskReassign
            | TaskFunction::QueryTask
            | TaskFunction::QueryTaskSet
            | TaskFunction::QueryAsynchronousEvent => false,
        }
    }
}

/// The connection or session that a logout request closes (RFC 7143 §11.14).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Logout {
    /// The session with all its connections.
    Session,
    /// One connection with its tasks; the connection may have failed already.
    Connection(Cid),
}

/// Load of a command on its connection besides its data, bytes. Because of this load, commands with little or
/// no data are distributed over the connections too.
const COMMAND_LOAD: u64 = 4096;

/// A NOP-Out that requests a response (RFC 7143 §11.18).
#[derive(Debug)]
pub(crate) struct Ping {
    pub(crate) sent_at: Option<Instant>,
    /// Whether the session itself sends the ping, to check that the target is alive.
    pub(crate) internal: bool,
    /// Data that the target returns.
    pub(crate) data: Bytes,
}

impl Task {
    /// Creates a task that has no connection yet.
    pub(crate) const fn new(kind: TaskKind, deadline: Option<Instant>) -> Self {
        Self { kind, allegiance: None, cmd_sn: None, deadline, outstanding: 0 }
    }

    /// Returns when the time limit of the task ends, if it has one, and which timer that is.
    fn limit(&self) -> Option<(Instant, Timer)> {
        let timer = match self.kind {
            TaskKind::Scsi(_) | TaskKind::Text(_) => Timer::Command,
            TaskKind::Management(_) => Timer::TaskManagement,
            TaskKind::Ping(_) => Timer::NopResponse,
            TaskKind::Logout(_) => Timer::Logout,
        };
        self.deadline.map(|deadline| (deadline, timer))
    }

    /// Returns when the time limit of the task ends, if it has one.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the connection on which all PDUs of the task are sent (RFC 7143 §4.2.5.1); `None` before the
    /// first PDU is in wire order.
    pub(crate) const fn allegiance(&self) -> Option<Cid> {
        self.allegiance
    }

    /// Returns the CmdSN of the task's first PDU.
    pub(crate) const fn cmd_sn(&self) -> Option<CmdSn> {
        self.cmd_sn
    }

    /// Returns the number of expected read bytes, if the task is a read.
    pub(crate) fn read_len(&self) -> Option<u64> {
        Some(self.as_scsi()?.read.as_ref()?.len() as u64)
    }

    /// Returns whether any PDU of the task has been put in wire order.
    pub(crate) const fn is_sent(&self) -> bool {
        self.allegiance.is_some()
    }

    /// Returns whether the task was put in wire order on a connection that has failed, and the target never
    /// received it there: the task starts over, with the same CmdSN (RFC 7143 §7.2.1).
    pub(crate) const fn starts_over(&self) -> bool {
        self.allegiance.is_none() && self.cmd_sn.is_some()
    }

    /// Returns whether the PDUs of the task consume the CmdSN that they carry (RFC 7143 §4.2.2.1).
    pub(crate) const fn uses_cmd_sn(&self) -> bool {
        match &self.kind {
            TaskKind::Scsi(scsi) => !scsi.immediate,
            TaskKind::Text(_)
            | TaskKind::Management(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => false,
        }
    }

    /// Returns the load of the task on its connection, bytes. It never changes, so that it can be subtracted
    /// when the task ends.
    pub(crate) fn load(&self) -> u64 {
        COMMAND_LOAD + self.as_scsi().map_or(0, |scsi| scsi.data_len() as u64)
    }

    /// Returns the write half of a SCSI command.
    pub(crate) fn write(&self) -> Option<&WriteTransfer> {
        self.as_scsi()?.write.as_deref()
    }

    pub(crate) fn as_scsi_mut(&mut self) -> Option<&mut ScsiTask> {
        match &mut self.kind {
            TaskKind::Scsi(task) => Some(task),
            TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => None,
        }
    }

    pub(crate) const fn as_scsi(&self) -> Option<&ScsiTask> {
        match &self.kind {
            TaskKind::Scsi(task) => Some(task),
            TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => None,
        }
    }
}
