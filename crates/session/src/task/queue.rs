//! Commands that wait for their CmdSN.

use iscsi_pdu::Itt;

use super::Task;
use super::set::TaskSet;
use crate::short_queue::ShortQueue;

/// The commands of a session that are not in wire order yet, in the order of submission. They are not
/// assigned to a connection. Tags of tasks that have ended are skipped.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue(ShortQueue<Itt>);

impl CommandQueue {
    pub(crate) fn push(&mut self, itt: Itt) {
        self.0.push_back(itt);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a command that starts over at the front of the queue.
    pub(crate) fn push_first(&mut self, itt: Itt) {
        self.0.push_front(itt);
    }

    pub(crate) fn withdraw(&mut self, itt: Itt) {
        self.0.retain(|queued| *queued != itt);
    }

    /// Removes and returns all commands.
    pub(crate) fn take_all(&mut self) -> ShortQueue<Itt> {
        std::mem::take(&mut self.0)
    }

    /// Returns the next command.
    pub(crate) fn first<'a>(&self, tasks: &'a TaskSet) -> Option<(Itt, &'a Task)> {
        self.0.iter().find_map(|itt| Some((*itt, tasks.get(*itt)?)))
    }

    /// Removes and returns the next command.
    pub(crate) fn pop(&mut self, tasks: &TaskSet) -> Option<Itt> {
        while let Some(itt) = self.0.pop_front() {
            if tasks.get(itt).is_some() {
                return Some(itt);
            }
        }
        None
    }

    /// Returns the load of the commands that a window of `count` allows, bytes. Commands that start over come
    /// first, and consume none of the window.
    pub(crate) fn load(&self, count: u32, tasks: &TaskSet) -> u64 {
        let queued = || self.0.iter().filter_map(|itt| tasks.get(*itt));
        let again = queued().take_while(|task| task.starts_over()).count();
        queued().take(again + count as usize).map(Task::load).sum()
    }
}
