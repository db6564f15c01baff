//! Reason why a session has no bytes to send. This shows which limit, or the target, determines its
//! rate.

use crate::session::Session;
use crate::task::Task;
use crate::task::read::ReadTransfer;

/// Reason why a session has no bytes to send.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Waiting {
    /// Nothing: no command is in flight.
    Nothing,
    /// An R2T: there is write data that the target has not requested yet (RFC 7143 §11.8).
    R2t,
    /// The command window: a command waits until the window allows its CmdSN (RFC 7143 §4.2.2.1).
    CommandWindow,
    /// The end of other writes: [`Session::limit_writes`] holds a write back.
    WriteLimit,
    /// The end of other reads: [`Session::limit_reads`] holds a read back.
    ReadLimit,
    /// Data-In and statuses: every request and its data has been sent.
    Answers,
}

impl Session {
    /// Returns what the session waits for, once [`poll_transmit`](Self::poll_transmit) has nothing more to
    /// send on any connection. Only SCSI commands are considered, not pings and other requests.
    #[must_use]
    pub fn waiting_for(&self) -> Waiting {
        let first = self.commands.first(&self.tasks);
        if self.tasks.iter().any(|(_, task)| needs_r2t(task)) {
            Waiting::R2t
        } else if first.is_some_and(|(_, task)| !self.window.lets_out(task)) {
            Waiting::CommandWindow
        } else if let Some((_, task)) = first.filter(|_| self.is_holding_back()) {
            if task.write().is_some() { Waiting::WriteLimit } else { Waiting::ReadLimit }
        } else if self.tasks.iter().any(|(_, task)| task.as_scsi().is_some()) {
            Waiting::Answers
        } else {
            Waiting::Nothing
        }
    }

    /// Returns the read data that the sent commands expect, bytes. A part of it may have arrived.
    #[must_use]
    pub fn awaited_data(&self) -> usize {
        let reads = |task: &Task| task.as_scsi()?.read.as_ref().map(ReadTransfer::len);
        let sent = self.tasks.iter().filter(|(_, task)| task.is_sent());
        sent.filter_map(|(_, task)| reads(task)).fold(0, usize::saturating_add)
    }

    /// Returns whether a command is held back only by [`limit_writes`](Self::limit_writes) or
    /// [`limit_reads`](Self::limit_reads): no connection may take it.
    #[must_use]
    pub fn is_holding_back(&self) -> bool {
        let Some((_, task)) = self.commands.first(&self.tasks) else { return false };
        let mut takers = self.connections.iter().filter(|c| c.takes_commands()).peekable();
        self.window.lets_out(task)
            && takers.peek().is_some()
            && takers.all(|connection| connection.is_at_limit(task, &self.tasks))
    }
}

fn needs_r2t(task: &Task) -> bool {
    let write = task.write().filter(|_| task.is_sent());
    write.is_some_and(|write| !write.has_data_due() && write.contiguous() < write.len())
}
