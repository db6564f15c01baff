//! Decides whether the cause of an error may pass while a caller waits.
//!
//! | error | while a session reconnects | while a disk is opened |
//! |---|---|---|
//! | no connection, connection lost, no answer, login class 3 | may pass | may pass |
//! | login class 2 but 0201: a target listens before its access list and its units are back | may pass | may pass |
//! | login 0201, or a target that does not prove itself | a few attempts | a few attempts |
//! | another unit at this portal | other portals only | ends |
//! | another size or block size, fenced off | ends | ends |
//! | a unit that is not there, or not ready | may pass, and the login was accepted | may pass, and the login was accepted |
//! | wrong input, unsupported, broken protocol | may pass: it was right before | ends |
//!
//! Design: `docs/design/waiting.md`.

use iscsi_multipath::reconnect::Outlook;
use iscsi_pdu::scsi::SenseKey;

use crate::error::kind::ErrorKind;
use crate::error::{Cause, Error, UnitCause};

impl Error {
    /// Returns the outlook for a session that existed and is lost. The parameters of its login were right
    /// before, so an error about them may pass.
    pub(crate) fn outlook_of_reopening(&self) -> Outlook {
        let is_of_unit = matches!(
            self.cause(),
            Cause::Unit(
                UnitCause::CapacityChanged { .. }
                    | UnitCause::BlockSizeChanged { .. }
                    | UnitCause::Preempted { .. }
            )
        );
        if is_of_unit {
            return Outlook::Never;
        }
        if matches!(self.cause(), Cause::Unit(UnitCause::DifferentUnits { .. })) {
            return Outlook::OtherPortal;
        }
        match self.cause() {
            _ if self.is_of_credentials() => Outlook::Credentials,
            Cause::Unit(_) => Outlook::LoginAccepted,
            Cause::Caller(_) | Cause::Session(_) | Cause::Link(_) | Cause::Consequence(_) => {
                Outlook::MayPass
            }
        }
    }

    /// Returns the outlook for a new disk or session.
    pub(crate) fn outlook_of_opening(&self) -> Outlook {
        match self.outlook_of_reopening() {
            outlook @ (Outlook::MayPass | Outlook::LoginAccepted) if self.may_come() => outlook,
            Outlook::Credentials => Outlook::Credentials,
            Outlook::MayPass | Outlook::LoginAccepted | Outlook::OtherPortal | Outlook::Never => {
                Outlook::Never
            }
        }
    }

    /// Returns whether the login failed because one side did not prove its identity. Status 0202, with which a
    /// target does not admit the initiator, does not count: the target's access list may not be loaded yet.
    pub(crate) fn is_of_credentials(&self) -> bool {
        let Some(failure) = self.login() else { return false };
        match failure.status() {
            Some(status) => status == (2, 1),
            None => failure.cause.is_authentication(),
        }
    }

    /// Returns whether the target refused the login with any status (RFC 7143 §11.13.5).
    pub(crate) fn is_refused_login(&self) -> bool {
        self.login().is_some_and(|failure| failure.status().is_some())
    }

    fn may_come(&self) -> bool {
        let is_not_ready = self.sense().is_some_and(|sense| sense.key == SenseKey::NotReady);
        self.is_transient()
            || self.is_refused_login()
            || is_not_ready
            || matches!(self.cause(), Cause::Unit(UnitCause::UnitGone(_)))
            || self.kind() == ErrorKind::NotFound
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::Lun;

    use super::*;
    use crate::error::{CallerCause, LinkCause, samples};
    use crate::url::UrlError;

    /// LOG-18, LOG-19 (RFC 7143 §11.13.5): while a target starts, it refuses logins that it will accept
    /// later, so these refusals may pass.
    #[test]
    fn log_18_a_refusal_may_pass_but_that_of_a_password_seldom_does() {
        for (class, detail) in [(2, 0), (2, 2), (2, 3), (2, 4), (2, 6), (3, 0), (3, 1), (3, 2)] {
            let error = samples::refused_login(class, detail);
            assert_eq!(error.outlook_of_reopening(), Outlook::MayPass, "{error}");
            assert_eq!(error.outlook_of_opening(), Outlook::MayPass, "{error}");
        }
        assert_eq!(samples::refused_login(2, 1).outlook_of_reopening(), Outlook::Credentials);
        assert_eq!(samples::refused_login(2, 1).outlook_of_opening(), Outlook::Credentials);
    }

    #[test]
    fn what_is_wrong_with_the_request_is_not_waited_for() {
        let unit = UrlError::NoUnit.into();
        let runtime = CallerCause::NoRuntime.into();
        let key = UnitCause::Unsupported("a key").into();
        for error in [unit, runtime, key] {
            let error: Error = error;
            assert_eq!(error.outlook_of_opening(), Outlook::Never, "{error}");
        }
        let changed = Error::from(UnitCause::CapacityChanged { before: 1, now: 2 });
        assert_eq!(changed.outlook_of_reopening(), Outlook::Never);
        assert_eq!(changed.outlook_of_opening(), Outlook::Never);
    }

    #[test]
    fn a_unit_that_is_not_there_is_an_accepted_login() {
        let missing: Error =
            UnitCause::NoSuchUnit { lun: Lun::ZERO, target: "target".to_owned() }.into();
        assert_eq!(missing.outlook_of_reopening(), Outlook::LoginAccepted);
        assert_eq!(missing.outlook_of_opening(), Outlook::LoginAccepted);
    }

    #[test]
    fn what_is_not_there_yet_is_waited_for() {
        let address = "192.0.2.1:3260".parse().unwrap();
        let host = "target.example".to_owned();
        let unknown = LinkCause::HostUnknown { host, reason: "no address".to_owned() };
        for error in [unknown.into(), LinkCause::Refused { address }.into()] {
            let error: Error = error;
            assert_eq!(error.outlook_of_opening(), Outlook::MayPass, "{error}");
        }
    }
}
