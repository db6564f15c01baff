//! Time limits: of logins, tasks, silence and missing StatSNs.

use std::time::{Duration, Instant};

use bytes::Bytes;
use iscsi_pdu::{Cid, Itt};

use super::Session;
use crate::config::SessionKind;
use crate::connection::Connection;
use crate::connection::state::ConnectionState;
use crate::error::{SessionError, TaskError};
use crate::output::Notice;
use crate::task::{Logout, Ping, Task, TaskKind};
use crate::timer::Timer;

/// A process that runs looks at the clock within this time after a deadline.
const PUNCTUAL: Duration = Duration::from_secs(1);

impl Session {
    /// When to call [`handle_timeout`](Self::handle_timeout) next, and what for. Never too late; it may be too early, since
    /// what was waited for may have come: after that call it is a later time, or none.
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let mut first = None;
        let mut add = |timer: Option<(Instant, Timer)>| {
            let is_before =
                |(deadline, _): &(Instant, Timer)| first.is_none_or(|(other, _)| *deadline < other);
            first = timer.filter(is_before).or(first);
        };
        for connection in self.connections.iter() {
            add(connection.login_deadline().map(|deadline| (deadline, Timer::Login)));
            add(self.nop_timer(connection));
            add(connection.stat_sn.deadline().map(|deadline| (deadline, Timer::StatSn)));
        }
        let of_tasks = self.tasks.earliest_deadline();
        of_tasks.filter(|(deadline, _)| first.is_none_or(|(other, _)| *deadline <= other)).or(first)
    }

    /// Time has passed. Calling too early or too often does no harm.
    ///
    /// More than a second after a deadline the process counts as stopped (SIGSTOP, a machine that sleeps): the time limits of
    /// logins and requests begin again then, since the target has had nothing to go on with.
    pub fn handle_timeout(&mut self, now: Instant) {
        for (deadline, itt) in self.tasks.take_timed_out(now) {
            if now.saturating_duration_since(deadline) > PUNCTUAL {
                self.begin_again(itt, now);
            } else {
                self.task_timed_out(itt, now);
            }
        }
        for cid in self.connections.cids(|_| true) {
            self.check_login(cid, now);
            self.check_life(cid, now);
            self.check_order(cid, now);
        }
        self.follow_up(now);
    }

    /// Whether the target has answered nothing since the session's NOP-Out for as long as that may take.
    pub fn is_sign_of_life_overdue(&self, cid: Cid, now: Instant) -> bool {
        let timer = self.connections.get(cid).and_then(|connection| self.nop_timer(connection));
        matches!(timer, Some((deadline, Timer::NopResponse)) if deadline <= now)
    }

    /// The target's host has acknowledged all that was sent on a connection, by the word of the transport. To be called
    /// when a [sign of life is overdue](Self::is_sign_of_life_overdue), before [`handle_timeout`](Self::handle_timeout).
    ///
    /// A target that answers no NOP-Out while it has a command, and whose host is there, is busy with the command: some
    /// answer nothing while they bring a large cache onto a slow medium. It is not given up for its silence, but within
    /// the time limit of the command; [`Notice::Busy`] tells.
    pub fn host_acknowledges(&mut self, cid: Cid, now: Instant) {
        if !self.is_sign_of_life_overdue(cid, now) {
            return;
        }
        let Some(operation) = self.tasks.operation_in_hand(cid) else { return };
        let Some(connection) = self.connections.get_mut(cid) else { return };
        let silence = now.saturating_duration_since(connection.liveness.last_received());
        connection.liveness.host_is_there(now);
        self.outputs.notice(Notice::Busy { cid, operation, silence });
    }

    /// The time limit of a task begins again, as long as it was.
    fn begin_again(&mut self, itt: Itt, now: Instant) {
        let Some(task) = self.tasks.get(itt) else { return };
        let timeouts = &self.config.timeouts;
        let limit = match &task.kind {
            TaskKind::Scsi(scsi) if scsi.may_be_cleared => None,
            TaskKind::Scsi(scsi) => timeouts.of(&scsi.cdb),
            TaskKind::Text(_) => timeouts.command,
            TaskKind::Ping(_) => Some(timeouts.nop_response),
            TaskKind::Management(_) => None,
            TaskKind::Logout(_) => Some(timeouts.logout),
        };
        let limit = limit.unwrap_or(timeouts.task_management);
        self.tasks.set_deadline(itt, Some(now + limit));
    }

    /// A task has no time limit any more: it ends, it gets another one, or what is done about it has one.
    fn task_timed_out(&mut self, itt: Itt, now: Instant) {
        if self.tasks.stop_waiting_for_data(itt) {
            let deadline = now + self.config.timeouts.task_management;
            return self.tasks.set_deadline(itt, Some(deadline));
        }
        let Some(task) = self.tasks.get(itt) else { return };
        match &task.kind {
            TaskKind::Scsi(_) => self.abort_for(itt, TaskError::TimedOut, now),
            TaskKind::Ping(_) => self.end_task(itt, TaskError::TimedOut),
            TaskKind::Text(_) if !task.is_sent() => self.end_task(itt, TaskError::TimedOut),
            TaskKind::Text(_) => self.fail(SessionError::TimedOut(Timer::Command)),
            TaskKind::Management(_) => self.fail(SessionError::TimedOut(Timer::TaskManagement)),
            TaskKind::Logout(Logout::Session) => self.logged_out(),
            TaskKind::Logout(Logout::Connection(cid)) => {
                let cid = *cid;
                self.tasks.remove_aborted(itt);
                self.cleanup_failed(cid);
            }
        }
    }

    /// A discovery session may not send a NOP-Out (RFC 7143 §4.3).
    fn nop_timer(&self, connection: &Connection) -> Option<(Instant, Timer)> {
        if self.config.kind == SessionKind::Discovery {
            return None;
        }
        connection.nop_timer(&self.config.timeouts)
    }

    fn check_login(&mut self, cid: Cid, now: Instant) {
        let deadline = self.connections.get(cid).and_then(Connection::login_deadline);
        let Some(deadline) = deadline.filter(|deadline| *deadline <= now) else { return };
        if now.saturating_duration_since(deadline) > PUNCTUAL {
            // The process was stopped, and the target could not go on without its requests.
            let timeout = self.config.timeouts.login;
            if let Some(connection) = self.connections.get_mut(cid) {
                connection.extend_login(now + timeout);
            }
            return;
        }
        self.fail_connection(cid, SessionError::TimedOut(Timer::Login), now);
    }

    fn check_life(&mut self, cid: Cid, now: Instant) {
        let Some(connection) = self.connections.get(cid) else { return };
        match self.nop_timer(connection).filter(|(deadline, _)| *deadline <= now) {
            Some((_, Timer::NopInterval)) => self.ask_for_life(cid, now),
            Some((_, timer)) => self.fail_connection(cid, SessionError::TimedOut(timer), now),
            None => {}
        }
    }

    fn check_order(&mut self, cid: Cid, now: Instant) {
        let Some(connection) = self.connections.get(cid) else { return };
        let Some(error) = connection.stat_sn.loss(now) else { return };
        match connection.state() {
            // What comes behind the gap may well be the answer to the logout.
            ConnectionState::InLogout if self.is_logging_out() => self.logged_out(),
            ConnectionState::XptWait
            | ConnectionState::InLogin
            | ConnectionState::LoggedIn
            | ConnectionState::InLogout
            | ConnectionState::CleanupWait => self.fail_connection(cid, error.into(), now),
        }
    }

    fn ask_for_life(&mut self, cid: Cid, now: Instant) {
        let task = Task::new(
            TaskKind::Ping(Ping { sent_at: None, internal: true, data: Bytes::new() }),
            None,
        );
        let Some(itt) = self.tasks.insert_beyond_limit(task) else { return };
        if let Some(connection) = self.connections.get_mut(cid) {
            connection.liveness.pinged(itt, now);
            connection.transmitter.request(itt);
        }
    }
}
