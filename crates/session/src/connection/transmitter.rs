//! The PDUs that wait to be sent on a connection, and their order.
//!
//! 1. urgent PDUs: responses to the target, immediate requests;
//! 2. then alternately, one PDU each: new commands, up to the connection's share of them, and data. Data is
//!    the rest of first bursts in the order of their commands, or else the R2Ts in the order in which they
//!    arrived (RFC 7143 §4.2.5.2).

use std::collections::VecDeque;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, Itt, Ttt};

use crate::error::ProtocolError;
use crate::params::Negotiated;
use crate::task::Task;
use crate::task::set::{Load, TaskSet};
use crate::task::write::DataOutPart;

/// Largest number of urgent PDUs that may wait when the target requests another response. It is more than a
/// target can request before the session has a chance to send a response.
const MAX_URGENT: usize = 1 << 16;

/// A PDU that does not wait for the command window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Urgent {
    /// The first PDU of an immediate task.
    Task(Itt),
    /// The response to a NOP-In of the target.
    PingReply { ttt: Ttt, lun: Lun },
    /// A NOP-Out that requests no response and acknowledges what has arrived.
    Acknowledgement { lun: Lun },
}

/// The PDU that a connection sends next.
#[derive(Debug)]
pub(crate) enum Next {
    Urgent(Urgent),
    /// The next command of the session.
    Command,
    /// A Data-Out of a task.
    DataOut {
        itt: Itt,
        part: DataOutPart,
    },
}

/// The least number of Data-Outs into which the write limit of a connection is divided, unless they would be
/// shorter than [`MIN_DATA_OUT`].
const DATA_OUTS_OUTSTANDING: u64 = 8;
/// Least size of a Data-Out that results from the write limit, bytes: one second at 64 kbit/s.
const MIN_DATA_OUT: usize = 8 << 10;

/// The queues of one connection, and its limits for new commands.
#[derive(Debug)]
pub(crate) struct Transmitter {
    /// PDUs that are sent before anything else and consume no CmdSN.
    urgent: VecDeque<Urgent>,
    /// Task management requests that the target refused because it had too many. Each of them waits until
    /// another task management request ends.
    deferred: VecDeque<Itt>,
    /// Writes whose first burst is not complete, in the order of their commands.
    unsolicited: VecDeque<Itt>,
    /// One entry for each R2T that is served, in the order of arrival.
    solicited: VecDeque<Itt>,
    /// Whether a new command comes next, because a Data-Out was just queued.
    commands_first: bool,
    /// The most write data that may be outstanding, bytes.
    write_limit: u64,
    /// The most read data that may be awaited, bytes.
    read_limit: u64,
    /// The load up to which the connection takes new commands at present, bytes.
    share: u64,
}

impl Default for Transmitter {
    fn default() -> Self {
        Self {
            urgent: VecDeque::new(),
            deferred: VecDeque::new(),
            unsolicited: VecDeque::new(),
            solicited: VecDeque::new(),
            commands_first: true,
            write_limit: u64::MAX,
            read_limit: u64::MAX,
            share: u64::MAX,
        }
    }
}

impl Transmitter {
    /// Returns a transmitter with the urgent PDUs and the limits of this one, for a login that starts again on
    /// a new transport connection.
    pub(super) fn restarted(&mut self) -> Self {
        let urgent = std::mem::take(&mut self.urgent);
        let (write_limit, read_limit) = (self.write_limit, self.read_limit);
        Self { urgent, write_limit, read_limit, ..Self::default() }
    }

    /// Returns whether no PDU waits in a queue of this connection. Deferred requests do not count: they wait
    /// for the end of another request.
    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.unsolicited.is_empty() && self.solicited.is_empty()
    }

    /// Removes the next PDU to send from its queue. `command` is the next command of the session, if the
    /// connection may send it.
    pub(super) fn next(
        &mut self,
        cid: Cid,
        command: Option<Itt>,
        agreed: &Negotiated,
        tasks: &mut TaskSet,
    ) -> Option<Next> {
        if let Some(urgent) = self.next_urgent(cid, tasks) {
            return Some(Next::Urgent(urgent));
        }
        let is_command_due = |queues: &Self, tasks: &TaskSet| {
            let command = command.and_then(|itt| tasks.get(itt));
            command.is_some_and(|task| {
                queues.has_turn(task, tasks.load_of(cid), agreed)
                    && !queues.is_at_read_limit(cid, task, tasks)
            })
        };
        // Commands and data take turns, so that neither holds up the other.
        let commands_first = self.commands_first;
        self.commands_first = !commands_first;
        if commands_first && is_command_due(self, tasks) {
            return Some(Next::Command);
        }
        if let Some((itt, part)) = self.next_data_out(agreed, tasks) {
            return Some(Next::DataOut { itt, part });
        }
        is_command_due(self, tasks).then_some(Next::Command)
    }

    fn next_urgent(&mut self, cid: Cid, tasks: &TaskSet) -> Option<Urgent> {
        let is_due = |urgent: &Urgent| match urgent {
            Urgent::Task(itt) => {
                !self.waits_for_burst(*itt, tasks)
                    && !tasks.waits_for_data(*itt)
                    && !tasks.waits_for_text(*itt, cid)
            }
            Urgent::PingReply { .. } | Urgent::Acknowledgement { .. } => true,
        };
        let at = self.urgent.iter().position(is_due)?;
        self.urgent.remove(at)
    }

    /// Returns whether an ABORT TASK must wait until the first burst of its task is in wire order.
    fn waits_for_burst(&self, request: Itt, tasks: &TaskSet) -> bool {
        tasks.aborted_by(request).is_some_and(|itt| self.unsolicited.contains(&itt))
    }

    fn next_data_out(
        &mut self,
        agreed: &Negotiated,
        tasks: &mut TaskSet,
    ) -> Option<(Itt, DataOutPart)> {
        let most = self.longest_data_out();
        let unsolicited = |itt| tasks.write_of(itt)?.next_unsolicited(agreed, most);
        next_of(&mut self.unsolicited, unsolicited).or_else(|| {
            next_of(&mut self.solicited, |itt| tasks.write_of(itt)?.next_solicited(agreed, most))
        })
    }

    /// Returns whether a new command may be sent on this connection. No write starts before the first burst
    /// of an earlier write is complete (RFC 7143 §4.2.5.2).
    fn has_turn(&self, task: &Task, load: Load, agreed: &Negotiated) -> bool {
        let is_behind_burst = task.write().is_some() && !self.unsolicited.is_empty();
        load.bytes < self.share && !is_behind_burst && !self.is_at_write_limit(task, load, agreed)
    }

    /// Returns whether a write must wait until other writes of the connection end. A write that starts over
    /// after the loss of its connection need not wait: the other writes may wait for this write, because the
    /// target executes nothing after a missing CmdSN (RFC 7143 §4.2.2.1).
    pub(super) fn is_at_write_limit(&self, task: &Task, load: Load, agreed: &Negotiated) -> bool {
        let outstanding = load.outstanding;
        let waits_for_others = outstanding > 0 && !task.starts_over();
        task.write().filter(|_| waits_for_others).is_some_and(|write| {
            outstanding.saturating_add(write.max_outstanding(agreed)) > self.write_limit
        })
    }

    /// Returns whether a read must wait until other reads of the connection end. A read that starts over
    /// after the loss of its connection need not wait: the target executes nothing after its missing CmdSN.
    pub(super) fn is_at_read_limit(&self, cid: Cid, task: &Task, tasks: &TaskSet) -> bool {
        let Some(len) = task.read_len().filter(|_| self.read_limit < u64::MAX) else {
            return false;
        };
        let awaited = tasks.awaited_on(cid);
        awaited > 0 && !task.starts_over() && awaited.saturating_add(len) > self.read_limit
    }

    /// Returns the longest data segment of a Data-Out, bytes, a multiple of four: a part of the write limit.
    /// It must not take long to send, because LIO waits at most 3 seconds from one Data-Out to the next.
    fn longest_data_out(&self) -> usize {
        let part = usize::try_from(self.write_limit / DATA_OUTS_OUTSTANDING).unwrap_or(usize::MAX);
        (part & !3).max(MIN_DATA_OUT)
    }

    /// Sets the most write data that may be outstanding, bytes.
    pub(crate) const fn limit_writes(&mut self, bytes: u64) {
        self.write_limit = bytes;
    }

    /// Sets the most read data that may be awaited, bytes.
    pub(crate) const fn limit_reads(&mut self, bytes: u64) {
        self.read_limit = bytes;
    }

    /// Returns the most write data that may be outstanding, bytes, never zero; `None` without a limit.
    pub(crate) fn write_limit(&self) -> Option<u64> {
        Some(self.write_limit.max(1)).filter(|limit| *limit < u64::MAX)
    }

    /// Sets the load up to which the connection takes new commands, bytes.
    pub(crate) const fn set_share(&mut self, bytes: u64) {
        self.share = bytes;
    }

    /// Queues an immediate request.
    pub(crate) fn request(&mut self, itt: Itt) {
        self.urgent.push_back(Urgent::Task(itt));
    }

    /// Queues a response that the target requests. A target that keeps requesting responses and does not read
    /// them violates the protocol.
    ///
    /// # Errors
    /// When too many urgent PDUs wait already.
    pub(crate) fn reply(&mut self, reply: Urgent) -> Result<(), ProtocolError> {
        if self.urgent.len() >= MAX_URGENT {
            return Err(ProtocolError::Unread { limit: MAX_URGENT });
        }
        self.urgent.push_back(reply);
        Ok(())
    }

    /// Returns whether immediate requests wait on this connection.
    pub(crate) fn has_requests(&self) -> bool {
        self.urgent.iter().any(|urgent| matches!(urgent, Urgent::Task(_)))
    }

    /// Removes and returns the urgent PDUs.
    pub(crate) fn take_urgent(&mut self) -> VecDeque<Urgent> {
        std::mem::take(&mut self.urgent)
    }

    /// Keeps a task management request that the target refused, to send it again later.
    pub(crate) fn defer(&mut self, itt: Itt) {
        self.deferred.push_back(itt);
    }

    /// Queues the oldest request that was deferred, and returns its tag.
    pub(crate) fn resume_deferred(&mut self) -> Option<Itt> {
        let itt = self.deferred.pop_front()?;
        self.request(itt);
        Some(itt)
    }

    /// Returns whether a request waits on this connection, deferred or not.
    pub(crate) fn has_request(&self, itt: Itt) -> bool {
        self.deferred.contains(&itt) || self.urgent.contains(&Urgent::Task(itt))
    }

    /// Returns the ABORT TASK requests of a task that wait on this connection.
    pub(crate) fn requests_to_abort(&self, itt: Itt, tasks: &TaskSet) -> impl Iterator<Item = Itt> {
        self.urgent.iter().filter_map(move |urgent| match urgent {
            Urgent::Task(request) => {
                Some(*request).filter(|request| tasks.aborted_by(*request) == Some(itt))
            }
            Urgent::PingReply { .. } | Urgent::Acknowledgement { .. } => None,
        })
    }

    /// Queues a write whose command was put in wire order and whose first burst is not complete.
    pub(crate) fn burst_begun(&mut self, itt: Itt) {
        self.unsolicited.push_back(itt);
    }

    /// Queues `count` more R2Ts of a task.
    pub(crate) fn serve_r2ts(&mut self, itt: Itt, count: usize) {
        self.solicited.extend(std::iter::repeat_n(itt, count));
    }

    /// Removes the R2Ts of a task.
    pub(crate) fn withdraw_r2ts(&mut self, itt: Itt) {
        self.solicited.retain(|queued| *queued != itt);
    }

    /// Discards what a task still had to send on this connection.
    pub(super) fn forget(&mut self, itt: Itt) {
        self.withdraw_r2ts(itt);
        self.unsolicited.retain(|queued| *queued != itt);
        self.urgent.retain(|queued| *queued != Urgent::Task(itt));
        self.deferred.retain(|queued| *queued != itt);
    }
}

/// Returns the next PDU of the first task in a queue, and removes the task from the queue when its burst is
/// complete.
fn next_of(
    queue: &mut VecDeque<Itt>,
    mut next: impl FnMut(Itt) -> Option<DataOutPart>,
) -> Option<(Itt, DataOutPart)> {
    while let Some(itt) = queue.front().copied() {
        let part = next(itt);
        if part.as_ref().is_none_or(|part| part.is_final) {
            queue.pop_front();
        }
        if let Some(part) = part {
            return Some((itt, part));
        }
    }
    None
}
