//! Login Responses (RFC 7143 §11.13).

use bytes::Bytes;
use iscsi_pdu::{Cid, LoginResponse, TargetOpcode};

use crate::connection::Connection;
use crate::error::{ProtocolError, SessionError};
use crate::login::{LoggedIn, Login, Progress, Redirect};
use crate::output::{Notice, Output};
use crate::session::Session;
use crate::window::CommandWindow;

impl Session {
    pub(super) fn receive_login(
        &mut self,
        cid: Cid,
        response: &LoginResponse,
        text: &Bytes,
    ) -> Result<(), SessionError> {
        let Some(connection) = self.connections.get_mut(cid) else { return Ok(()) };
        let Some(login) = connection.login_mut() else {
            return Err(
                ProtocolError::Unexpected { pdu: TargetOpcode::LoginResponse.name() }.into()
            );
        };
        match login.handle_response(&self.config, response, text) {
            Ok(Progress::Pending) => Ok(()),
            Ok(Progress::FullFeature(outcome)) => {
                self.logged_in(cid, *outcome);
                Ok(())
            }
            Ok(Progress::Redirected(redirect)) => self.redirected(cid, redirect),
            Err(error) if login.may_retry_with_single_algorithm(&error) => {
                self.try_single_algorithm(cid);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a target that closes the connection of a login now may have done so because of the
    /// list of CHAP algorithms.
    pub(crate) fn may_have_closed_over_list(&self, cid: Cid) -> bool {
        let login = self.connections.get(cid).and_then(Connection::login);
        login.is_some_and(Login::may_retry_after_close)
    }

    /// Starts the login again, with MD5 as the only CHAP algorithm. This happens at most one time in a
    /// session.
    pub(crate) fn try_single_algorithm(&mut self, cid: Cid) {
        self.logins.use_single_chap_algorithm();
        self.outputs.notice(Notice::SingleChapAlgorithm);
        self.connect_again(cid, None);
    }

    fn logged_in(&mut self, cid: Cid, outcome: LoggedIn) {
        let Some(connection) = self.connections.get_mut(cid) else { return };
        if self.state.is_free() {
            self.state.logged_in(outcome.tsih);
            self.window.begin(outcome.exp_cmd_sn, outcome.max_cmd_sn);
        } else {
            self.window.update(outcome.exp_cmd_sn, outcome.max_cmd_sn);
        }
        connection.logged_in(outcome);
        self.outputs.push(Output::LoggedIn { cid });
    }

    fn redirected(&mut self, cid: Cid, redirect: Redirect) -> Result<(), SessionError> {
        let Some(connection) = self.connections.get_mut(cid) else { return Ok(()) };
        connection.redirected(self.config.max_redirects)?;
        let Redirect { address, permanent } = redirect;
        let notice = Notice::Redirected { address: address.clone(), permanent };
        self.outputs.notice(notice);
        self.connect_again(cid, Some(address));
        Ok(())
    }

    /// Starts a login again on a new transport connection.
    fn connect_again(&mut self, cid: Cid, address: Option<iscsi_pdu::TargetAddress>) {
        let Some(connection) = self.connections.get_mut(cid) else { return };
        connection.login_restarted();
        if self.state.is_free() {
            self.window = CommandWindow::new(self.config.first_cmd_sn);
        }
        self.outputs.push(Output::Disconnect { cid, abortive: false });
        self.outputs.push(Output::Connect { cid, address });
    }
}
