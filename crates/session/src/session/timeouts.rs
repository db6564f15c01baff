//! Time limits of logins, tasks, silence and missing StatSNs.

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

/// A running process handles a deadline at most this long after it has passed.
const PUNCTUAL: Duration = Duration::from_secs(1);

impl Session {
    /// Returns when to call [`handle_timeout`](Self::handle_timeout) next, and for which timer. The time is
    /// never too late. It may be too early, if the awaited event has occurred: after the call of
    /// `handle_timeout` this returns a later time, or `None`.
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

    /// Handles the time limits that have ended by `now`. Calling too early or too often does no harm.
    ///
    /// If the call is more than a second after a deadline, the process counts as stopped (SIGSTOP, suspend).
    /// The time limits of logins and requests then start again, because the target has received nothing to
    /// continue with.
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

    /// Returns whether the time limit after a NOP-Out of the session has passed, and no byte has moved on the
    /// connection in that time.
    pub fn is_sign_of_life_overdue(&self, cid: Cid, now: Instant) -> bool {
        let timer = self.connections.get(cid).and_then(|connection| self.nop_timer(connection));
        matches!(timer, Some((deadline, Timer::NopResponse)) if deadline <= now)
    }

    /// Informs the session that the target's host has acknowledged everything that was sent on a connection,
    /// as the transport reports. Call this when a [sign of life is overdue](Self::is_sign_of_life_overdue),
    /// before [`handle_timeout`](Self::handle_timeout).
    ///
    /// If a target does not respond to a NOP-Out while it has a command, and its host is alive, it is busy
    /// with the command: some targets respond to nothing while they write a large cache to a slow medium. The
    /// session then does not end because of the silence, but waits for the time limit of the command.
    /// [`Notice::Busy`] reports this.
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

    /// Starts the time limit of a task again, with its full length.
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

    /// Handles a task whose time limit has ended: the task ends, gets another time limit, or is aborted by an
    /// ABORT TASK with a time limit of its own.
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

    /// Returns the NOP timer of a connection; none in a discovery session, which may not send a NOP-Out (RFC 7143
    /// §4.3).
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
            // The process was stopped and sent no requests, so the target could not continue the login: the
            // time limit starts again.
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
            // The PDU that waits behind the gap may be the response to the logout, so the session ends as
            // logged out.
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
