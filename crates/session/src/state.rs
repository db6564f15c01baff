//! The state of a session (RFC 7143 §8.3).

use iscsi_pdu::Tsih;

use crate::error::SessionError;
use crate::reopening::Reopening;

/// The phase of a session, and what is known about its end.
#[derive(Debug)]
pub(crate) struct SessionState {
    phase: Phase,
    /// The handle that the target gave at the end of the first login.
    tsih: Tsih,
    /// Why the session is being logged out, if the caller did not request it.
    logout_cause: Option<SessionError>,
    /// The times for a reconnect, once the end of the session or a logout response has set them.
    reopening: Option<Reopening>,
}

/// The states of RFC 7143 §8.3, with separate states for the steps of an orderly end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Q1 FREE: the first login is in progress.
    Free,
    /// Q3 LOGGED_IN.
    LoggedIn,
    /// Still Q3, but no new request is accepted: the logout follows the last task.
    Closing,
    /// The session has ended.
    Ended,
}

impl SessionState {
    pub(crate) const fn new() -> Self {
        Self { phase: Phase::Free, tsih: Tsih::NEW_SESSION, logout_cause: None, reopening: None }
    }

    pub(crate) const fn tsih(&self) -> Tsih {
        self.tsih
    }

    pub(crate) const fn reopening(&self) -> Option<Reopening> {
        self.reopening
    }

    /// Returns whether no login of the session has succeeded yet.
    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Free
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.phase == Phase::LoggedIn
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns whether the caller may submit requests.
    pub(crate) const fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Free | Phase::LoggedIn)
    }

    /// Returns whether new commands may still be put in wire order.
    pub(crate) const fn sends_commands(&self) -> bool {
        match self.phase {
            Phase::LoggedIn => true,
            Phase::Closing => self.logout_cause.is_none(),
            Phase::Free | Phase::Ended => false,
        }
    }

    /// Returns whether the logout is due. A logout that the target requests does not wait for tasks to end.
    pub(crate) fn is_logout_due(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.phase == Phase::Closing && (self.logout_cause.is_some() || !has_work())
    }

    /// Records that the first login has succeeded.
    pub(crate) const fn logged_in(&mut self, tsih: Tsih) {
        self.phase = Phase::LoggedIn;
        self.tsih = tsih;
    }

    /// Starts the orderly end of the session on request of the caller.
    pub(crate) fn close(&mut self) {
        if self.is_logged_in() {
            self.phase = Phase::Closing;
        }
    }

    /// Starts the end of the session on request of the target. Returns `false` if the session has ended or the
    /// target has requested it before.
    pub(crate) fn close_for(&mut self, cause: SessionError) -> bool {
        if self.is_ended() || self.logout_cause.is_some() {
            return false;
        }
        self.phase = Phase::Closing;
        self.logout_cause = Some(cause);
        true
    }

    /// Sets the times for a reconnect that a logout response states, if it states any.
    pub(crate) const fn set_reopening(&mut self, reopening: Option<Reopening>) {
        self.reopening = reopening;
    }

    /// Returns why the session fails after the error `happened`. If the target requested a logout and closes
    /// the connection without waiting for the logout, the target's request is the cause.
    pub(crate) fn cause_of_failure(&mut self, happened: SessionError) -> SessionError {
        let is_transport = matches!(happened, SessionError::Transport(_));
        self.logout_cause.take().filter(|_| is_transport).unwrap_or(happened)
    }

    /// Returns the result of the session after a logout.
    pub(crate) fn result_of_logout(&mut self) -> Result<(), SessionError> {
        self.logout_cause.take().map_or(Ok(()), Err)
    }

    /// Ends the session; returns `false` if it had ended before. The times for a reconnect are those of the
    /// logout response, else those that the target announced, else those that were `agreed` at login.
    pub(crate) fn end(&mut self, cause: Option<&SessionError>, agreed: Option<Reopening>) -> bool {
        if self.is_ended() {
            return false;
        }
        self.phase = Phase::Ended;
        let announced = cause.and_then(Reopening::announced);
        self.reopening = self.reopening.or(announced).or(agreed);
        true
    }
}
