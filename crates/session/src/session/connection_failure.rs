//! Handles the failure of one connection: the effect on its tasks, the other connections and the session (RFC
//! 7143 §7.1, §11.14).
//!
//! ```text
//!   fails in login                 ──► closed; no task of the session depends on it
//!   fails later, another one is up ──► CLEANUP_WAIT: a logout of its CID over another connection;
//!                                      at the response its tasks end, or are sent again
//!   the last one that is up fails  ──► the session fails
//! ```

use std::time::Instant;

use iscsi_pdu::scsi::Lun;
use iscsi_pdu::{Cid, CmdSn, Itt, LogoutCode, LogoutResponse};

use super::Session;
use crate::connection::Connection;
use crate::connection::state::ConnectionState;
use crate::connection::transmitter::Urgent;
use crate::error::{SessionError, TaskError};
use crate::output::{Notice, Output};
use crate::reopening::Reopening;
use crate::task::{Logout, Task, TaskKind};

impl Session {
    /// Ends the connection or the session, depending on which of them the error concerns.
    pub(crate) fn fail_for(&mut self, cid: Cid, why: SessionError, now: Instant) {
        let in_login = self.connections.get(cid).is_some_and(Connection::is_logging_in);
        if in_login || why.is_of_one_connection() {
            self.fail_connection(cid, why, now);
        } else {
            self.fail(why);
        }
    }

    /// Ends a connection. Ends the session too if it cannot continue without the connection.
    pub(crate) fn fail_connection(&mut self, cid: Cid, why: SessionError, now: Instant) {
        let Some(connection) = self.connections.get(cid) else { return };
        match connection.state() {
            ConnectionState::CleanupWait => {}
            ConnectionState::XptWait | ConnectionState::InLogin if !self.state.is_free() => {
                self.give_up_login(cid, why);
            }
            ConnectionState::LoggedIn if self.connections.has_another_than(cid) => {
                self.mark_connection_failed(cid, why, now);
            }
            ConnectionState::InLogout if !self.is_logging_out() => self.close_connection(cid),
            ConnectionState::XptWait
            | ConnectionState::InLogin
            | ConnectionState::LoggedIn
            | ConnectionState::InLogout => self.fail(why),
        }
    }

    fn give_up_login(&mut self, cid: Cid, why: SessionError) {
        tracing::debug!(%cid, %why, "the login of an added connection fails");
        self.connections.remove(cid);
        self.report_lost(cid, why);
    }

    fn report_lost(&mut self, cid: Cid, why: SessionError) {
        self.outputs.push(Output::Disconnect { cid, abortive: true });
        self.outputs.push(Output::ConnectionLost { cid, why });
    }

    /// Marks a connection as failed, and keeps its tasks until the target has logged it out: the target may
    /// not have noticed the failure, and may still execute the tasks.
    fn mark_connection_failed(&mut self, cid: Cid, why: SessionError, now: Instant) {
        tracing::debug!(%cid, %why, "a connection fails, the session goes on");
        let Some(connection) = self.connections.get_mut(cid) else { return };
        let urgent = connection.failed(why.clone());
        self.report_lost(cid, why);
        urgent.into_iter().for_each(|urgent| self.divert(urgent));
        self.leave_to_cleanup(cid, now);
        self.ask_for_cleanup(cid, now);
    }

    /// Moves an urgent PDU of a failed connection to another one, if it was not sent yet. A response to the
    /// target belongs to the connection and is dropped, and so is a NOP-Out of the session. ABORT TASK stays
    /// with its task: it must not be sent over another connection before the logout, and the logout makes it
    /// unnecessary (RFC 7143 §11.5.1).
    pub(super) fn divert(&mut self, urgent: Urgent) {
        let Urgent::Task(itt) = urgent else { return };
        let Some(task) = self.tasks.get(itt) else { return };
        match &task.kind {
            TaskKind::Ping(ping) if ping.internal => {
                self.tasks.remove(itt);
            }
            // A task that was sent stays on its connection (RFC 7143 §4.2.5.1), and ends with the clean-up.
            _ if task.is_sent() => {}
            TaskKind::Scsi(_)
            | TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(_) => self.push_urgent(itt),
        }
    }

    /// Removes the time limits of requests that were sent and have not ended, because the logout of the
    /// connection has its own time limit. A management request is not sent again, because a reset that was
    /// executed must not affect the commands that came after it. Only a logout is sent again, because a
    /// second logout changes nothing.
    fn leave_to_cleanup(&mut self, cid: Cid, now: Instant) {
        let sent = |(itt, task): (Itt, &Task)| match &task.kind {
            _ if task.allegiance() != Some(cid) => None,
            TaskKind::Scsi(_) => None,
            TaskKind::Logout(Logout::Connection(other)) => Some((itt, Some(*other))),
            TaskKind::Management(_)
            | TaskKind::Text(_)
            | TaskKind::Ping(_)
            | TaskKind::Logout(Logout::Session) => Some((itt, None)),
        };
        for (itt, other) in self.tasks.iter().filter_map(sent).collect::<Vec<_>>() {
            self.tasks.set_deadline(itt, None);
            if let Some(other) = other {
                self.tasks.remove_aborted(itt);
                self.ask_for_cleanup(other, now);
            }
        }
    }

    /// Sends the logout of a failed connection over any other one (RFC 7143 §11.14).
    fn ask_for_cleanup(&mut self, cid: Cid, now: Instant) {
        let logout = Logout::Connection(cid);
        if self.logout_of(logout).is_some() {
            return;
        }
        match self.new_logout(logout, now) {
            Some(itt) => self.push_urgent(itt),
            None => self.cleanup_failed(cid),
        }
    }

    /// Handles the response to the logout of one connection.
    pub(crate) fn connection_logged_out(
        &mut self,
        cid: Cid,
        response: &LogoutResponse,
        now: Instant,
    ) {
        let code = response.response;
        // A target that finds no such connection has terminated its tasks as well. The target had the
        // connection, because the login succeeded. It drops a connection only at an explicit or implicit
        // logout, or after a failure, when the connection state times out (transition M1, RFC 7143 §8.2.2).
        // Both terminate the tasks (§11.14.5). Before M1 the connection is in CLEANUP_WAIT, and the target
        // finds it.
        let gone = matches!(code, LogoutCode::SUCCESS | LogoutCode::CID_NOT_FOUND);
        match self.connections.get(cid).map(Connection::state) {
            Some(ConnectionState::CleanupWait) if gone => self.clean_up(cid, now),
            Some(ConnectionState::CleanupWait) => {
                self.state.set_reopening(Reopening::after_logout(response));
                self.cleanup_failed(cid);
            }
            Some(_) => {
                if !gone {
                    let notice = Notice::LogoutFailed { response: code.0 };
                    self.outputs.notice(notice);
                }
                self.close_connection(cid);
            }
            None => {}
        }
    }

    /// Handles the failure of the logout of one connection. If the connection had failed, the session ends
    /// with its error, because the target may still execute tasks of the connection. A connection that the
    /// caller drops is only closed. If the session is logging out too, it ends as logged out.
    pub(crate) fn cleanup_failed(&mut self, cid: Cid) {
        match self.connections.get(cid).and_then(Connection::failure).cloned() {
            _ if self.is_logging_out() => self.logged_out(),
            Some(why) => self.fail(why),
            None => self.close_connection(cid),
        }
    }

    /// Cleans up after the target has given up all tasks of a failed connection. The tasks whose CmdSN the
    /// target has counted end. The other tasks start over, before all new commands and in their old order.
    fn clean_up(&mut self, cid: Cid, now: Instant) {
        let Some(mut connection) = self.connections.remove(cid) else { return };
        let Some(cause) = connection.failure().cloned() else { return };
        for urgent in connection.transmitter.take_urgent() {
            if let Urgent::Task(itt) = urgent {
                let why = TaskError::ConnectionLost { cause: cause.clone(), sent: false };
                self.end_task(itt, why);
            }
        }
        let own = |(itt, task): (Itt, &Task)| {
            (task.allegiance() == Some(cid)).then(|| (task.cmd_sn().unwrap_or_default(), itt))
        };
        let mut tasks: Vec<_> = self.tasks.iter().filter_map(own).collect();
        let next = self.window.exp_cmd_sn();
        tasks.sort_by_key(|(cmd_sn, _)| std::cmp::Reverse(cmd_sn.distance_from(next)));
        for (cmd_sn, itt) in tasks {
            self.clean_up_task(itt, cmd_sn, &cause, now);
        }
    }

    /// Ends a task of a failed connection, or starts it over. Commands that the target never received would
    /// block all later ones. So each such CmdSN is sent again over another connection, with the same command
    /// (RFC 7143 §7.2.1). If the command is not needed any more, an ABORT TASK fills the gap.
    fn clean_up_task(&mut self, itt: Itt, cmd_sn: CmdSn, cause: &SessionError, now: Instant) {
        let uncounted = !self.window.exp_cmd_sn().is_after(cmd_sn);
        let Some(task) = self.tasks.get_mut(itt) else { return };
        let uncounted = uncounted && task.uses_cmd_sn();
        match task.as_scsi_mut() {
            Some(scsi) if uncounted && scsi.aborting.is_none() => {
                scsi.start_over();
                self.tasks.unassign(itt);
                self.commands.push_first(itt);
            }
            scsi => {
                let lun = scsi.as_ref().map_or(Lun::ZERO, |scsi| scsi.lun);
                let given_up = scsi.and_then(|scsi| scsi.aborting.as_deref().cloned());
                let lost = || TaskError::ConnectionLost { cause: cause.clone(), sent: true };
                self.end_task(itt, given_up.unwrap_or_else(lost));
                if uncounted {
                    self.fill_gap(itt, lun, cmd_sn, now);
                }
            }
        }
    }
}
