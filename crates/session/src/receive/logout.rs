//! Logout Responses (RFC 7143 §11.15).

use std::time::Instant;

use iscsi_pdu::{Cid, LogoutCode, LogoutResponse, TargetOpcode};

use crate::error::SessionError;
use crate::output::Notice;
use crate::reopening::Reopening;
use crate::session::Session;
use crate::task::{Logout, TaskKind};

impl Session {
    pub(super) fn receive_logout(
        &mut self,
        cid: Cid,
        response: &LogoutResponse,
        now: Instant,
    ) -> Result<(), SessionError> {
        if !self.take_answer(cid, response.itt, response.stat_sn)? {
            return Ok(());
        }
        let is_logout = |kind: &TaskKind| matches!(kind, TaskKind::Logout(_));
        let task = self.take_task(cid, response.itt, TargetOpcode::LogoutResponse, is_logout)?;
        match task.map(|task| task.kind) {
            Some(TaskKind::Logout(Logout::Connection(closed))) => {
                self.connection_logged_out(closed, response, now);
            }
            Some(_) => self.session_logged_out(response),
            // The response belongs to a request that was aborted, so the response is ignored.
            None => {}
        }
        Ok(())
    }

    fn session_logged_out(&mut self, response: &LogoutResponse) {
        if response.response != LogoutCode::SUCCESS {
            let notice = Notice::LogoutFailed { response: response.response.0 };
            self.outputs.notice(notice);
        }
        self.state.set_reopening(Reopening::after_logout(response));
        self.logged_out();
    }
}
