//! Writes error messages: the fact, then after a semicolon what the reader can do.
//!
//! The libraries give advice to programmers, with the names of functions. The readers of these messages are
//! users of a program, so the advice names options and programs instead.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;

use iscsi_initiator::device::DeviceError;
use iscsi_initiator::{Advice, Error};

use crate::failure::file_advice;

/// An error that a program can print.
pub trait Sentence {
    /// Returns the fact, and the advice about it.
    fn sentence(&self) -> String;
}

impl Sentence for Error {
    fn sentence(&self) -> String {
        join(self, self.advice().map(|advice| words(advice, self)))
    }
}

impl Sentence for iscsi_volume::Error {
    fn sentence(&self) -> String {
        if let Self::Unit { member, cause } = self {
            return format!("{member}: {}", cause.sentence());
        }
        join(self, self.advice())
    }
}

impl Sentence for DeviceError {
    fn sentence(&self) -> String {
        match self.source_as::<Error>() {
            Some(unit) => join(self, unit.advice().map(|advice| words(advice, unit))),
            None => format!("{self}{}", file_advice(self.io_kind())),
        }
    }
}

impl Sentence for io::Error {
    fn sentence(&self) -> String {
        format!("{self}{}", file_advice(self.kind()))
    }
}

/// Joins a fact and the advice about it.
pub fn join(fact: &impl Display, advice: Option<impl Display>) -> String {
    advice.map_or_else(|| fact.to_string(), |advice| format!("{fact}; {advice}"))
}

/// Returns the initiator's advice on an error, in the words of the programs.
#[must_use]
pub fn words(advice: Advice, error: &Error) -> Cow<'static, str> {
    command(advice, error).map_or_else(|| text(advice).into(), Cow::Owned)
}

/// Returns a command that helps, with the portal or the target of the error.
fn command(advice: Advice, error: &Error) -> Option<String> {
    if advice == Advice::ListTargets {
        let portal = error.portal()?;
        return Some(format!("iscsi-util discover iscsi://{portal} lists its targets"));
    }
    if advice == Advice::ListUnits {
        let target = error.target_url()?;
        return Some(format!("iscsi-util luns {target} lists its units"));
    }
    None
}

/// Advice in the words of the programs, where the words of the library do not suit the users of a program.
const WORDS: [(Advice, &str); 28] = [
    (Advice::ProvideTls, "use one that was built with the feature tls"),
    (Advice::ListTargets, "iscsi-util discover iscsi://HOST lists its targets"),
    (Advice::ListUnits, "iscsi-util luns iscsi://HOST/TARGET lists its units"),
    (
        Advice::NameTarget,
        "write iscsi://host/target/lun; iscsi-util discover iscsi://HOST lists the targets",
    ),
    (
        Advice::GivePassword,
        "put it into a password file (--password-file), or into the variable LIBISCSI_CHAP_PASSWORD",
    ),
    (
        Advice::GiveTargetPassword,
        "put the password into a file for the target's password (--target-password-file), or into the variable \
             LIBISCSI_CHAP_TARGET_PASSWORD",
    ),
    (
        Advice::GiveCredentials,
        "name the user as in iscsi://USER@HOST/..., and put the password into a password file (--password-file), or \
             into the variable LIBISCSI_CHAP_PASSWORD",
    ),
    (
        Advice::AdmitInitiator,
        "add it to the target's access list, or use another initiator name (--initiator-name)",
    ),
    (
        Advice::CheckPort,
        "check the port, and that the target is running, or wait for it (--wait 5min)",
    ),
    (
        Advice::CheckFirewall,
        "check the address, the route and the firewall, or wait for the target (--wait 5min)",
    ),
    (Advice::WaitForTarget, "try again later, or wait for it (--wait 5min)"),
    (Advice::CheckNetwork, "run the command again, and check the network if that goes on"),
    (Advice::Reconnect, "run the command again"),
    (Advice::Reopen, "run the command again"),
    (Advice::RestoreUnit, "bring it back there, and run the command again"),
    (Advice::OneUnit, "name only portals of one unit, and run the command again"),
    (Advice::AskForLess, "ask for what it has, or run the command again"),
    (Advice::CheckMedium, "see which one is there, and run the command again"),
    (Advice::GiveKey, "name one in the URL, as in ?reservation_key=0x1a2b"),
    (Advice::CheckOtherHosts, "make sure that none uses it, and run the command again"),
    (Advice::FindHolder, "iscsi-util reservations shows which one"),
    (
        Advice::ReleaseAgain,
        "release it again when a session is back there, or end its registration with iscsi-util preempt",
    ),
    (Advice::PreemptKey, "end its registration with iscsi-util preempt"),
    (
        Advice::StopOtherHost,
        "stop it first; if it is gone, end its registration with PREEMPT, as iscsi-util preempt does",
    ),
    (Advice::UseOtherClass, "that is a defect of the program: report it"),
    (Advice::UseRuntime, "that is a defect of the program: report it"),
    (Advice::Await, "that is a defect of the program: report it"),
    (Advice::EndSessions, "that is a defect of the program: report it"),
];

/// Returns the advice in the words of the programs, or in the words of the library if `WORDS` does not have it.
fn text(advice: Advice) -> &'static str {
    let own = WORDS.iter().find(|(known, _)| *known == advice);
    own.map_or_else(|| advice.text(), |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::samples;

    use super::*;

    /// Users of a program do not know the functions of the library, so the advice must not name them.
    #[test]
    fn no_advice_is_in_the_words_of_the_library() {
        for advice in Advice::ALL {
            let words = words(*advice, &samples::closed());
            for part in ["::", "with_", "spawn_blocking", "connect again", "open it"] {
                assert!(!words.contains(part), "{advice:?}: {words}");
            }
        }
    }

    #[test]
    fn a_sentence_has_the_fact_and_the_command_that_helps() {
        let error = samples::no_such_unit();
        let sentence = "the target has no logical unit 0; iscsi-util luns \
                        iscsi://192.0.2.5:3260/iqn.2026-01.org.example:disk lists its units";
        assert_eq!(error.sentence(), sentence);
        let part = DeviceError::from(error).of_member("member 1");
        assert_eq!(part.sentence(), format!("member 1: {sentence}"));
        assert_eq!(
            DeviceError::from(io::Error::from(part)).sentence(),
            format!("member 1: {sentence}")
        );
        let (member, cause) = ("member 0".to_owned(), samples::closed().into());
        let volume = iscsi_volume::Error::Unit { member, cause };
        assert_eq!(volume.sentence(), "member 0: the session is closed; run the command again");
        let file = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(file.sentence(), "entity not found; check the path");
        assert_eq!(DeviceError::from(file).sentence(), "entity not found; check the path");
    }

    /// The advice names the option `--wait`, which each program has.
    #[test]
    fn who_may_wait_is_told_how() {
        assert_eq!(
            samples::refused().sentence(),
            "nothing listens at 192.0.2.5:3260; check the port, and that the target is running, or wait for it (--wait 5min)"
        );
    }
}
