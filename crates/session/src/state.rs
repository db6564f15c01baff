//! The state of a session (RFC 7143 §8.3).

use iscsi_pdu::Tsih;

use crate::error::SessionError;
use crate::reopening::Reopening;

/// Where a session stands, and what was settled on the way.
#[derive(Debug)]
pub(crate) struct SessionState {
    phase: Phase,
    /// The handle that the target gave at the end of the first login.
    tsih: Tsih,
    /// Why the session is being logged out, when the caller did not ask for it.
    logout_cause: Option<SessionError>,
    /// The times for opening the session anew, once its end or a logout response has settled them.
    reopening: Option<Reopening>,
}

/// The states of RFC 7143 §8.3, with the steps of the end told apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Q1 FREE: the first login is under way.
    Free,
    /// Q3 LOGGED_IN.
    LoggedIn,
    /// Q3 still, but no new request is taken: the logout follows the last task.
    Closing,
    /// It is over.
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

    /// Whether no login of the session has succeeded yet.
    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Free
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.phase == Phase::LoggedIn
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Whether the caller may hand in something new.
    pub(crate) const fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Free | Phase::LoggedIn)
    }

    /// Whether new commands may still be put in wire order.
    pub(crate) const fn sends_commands(&self) -> bool {
        match self.phase {
            Phase::LoggedIn => true,
            Phase::Closing => self.logout_cause.is_none(),
            Phase::Free | Phase::Ended => false,
        }
    }

    /// Whether the logout is due. One that the target asks for does not wait for work to end.
    pub(crate) fn is_logout_due(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.phase == Phase::Closing && (self.logout_cause.is_some() || !has_work())
    }

    /// The first login has succeeded.
    pub(crate) const fn logged_in(&mut self, tsih: Tsih) {
        self.phase = Phase::LoggedIn;
        self.tsih = tsih;
    }

    /// The caller wants the session to end in order.
    pub(crate) fn close(&mut self) {
        if self.is_logged_in() {
            self.phase = Phase::Closing;
        }
    }

    /// The target wants the session to end; `false` if it has ended or the target has said so before.
    pub(crate) fn close_for(&mut self, cause: SessionError) -> bool {
        if self.is_ended() || self.logout_cause.is_some() {
            return false;
        }
        self.phase = Phase::Closing;
        self.logout_cause = Some(cause);
        true
    }

    /// Takes the times that a logout response names, if it names any.
    pub(crate) const fn set_reopening(&mut self, reopening: Option<Reopening>) {
        self.reopening = reopening;
    }

    /// Why the session fails, when this has `happened`. A target that asked for a logout may not wait
    /// for it: what it asked for is the cause.
    pub(crate) fn cause_of_failure(&mut self, happened: SessionError) -> SessionError {
        let is_transport = matches!(happened, SessionError::Transport(_));
        self.logout_cause.take().filter(|_| is_transport).unwrap_or(happened)
    }

    /// How the session ends after a logout.
    pub(crate) fn result_of_logout(&mut self) -> Result<(), SessionError> {
        self.logout_cause.take().map_or(Ok(()), Err)
    }

    /// The session ends, unless it has. The times for opening it anew are those of the logout response,
    /// else those that the target announced, else those `agreed` at the login.
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
