//! Logout Responses (RFC 7143 §11.15).

use iscsi_pdu::{Cid, LogoutCode, LogoutResponse};

use crate::Session;
use crate::error::SessionError;
use crate::output::{Notice, Output};
use crate::task::TaskKind;

impl Session {
    pub(super) fn receive_logout(
        &mut self,
        cid: Cid,
        response: &LogoutResponse,
    ) -> Result<(), SessionError> {
        if !self.take_stat_sn(cid, response.stat_sn)? {
            return Ok(());
        }
        let is_logout = |kind: &TaskKind| matches!(kind, TaskKind::Logout);
        self.take_task(cid, response.itt, "Logout Response", is_logout)?;
        let LogoutCode(code) = response.response;
        if response.response != LogoutCode::SUCCESS {
            self.outputs.push_back(Output::Notice(Notice::LogoutFailed { response: code }));
        }
        self.logged_out();
        Ok(())
    }
}
