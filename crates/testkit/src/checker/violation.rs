//! Violations of the standard's rules.

use std::fmt;

use crate::conn_id::ConnId;

/// A violation of a rule by an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The name of the rule: its subject and a number.
    pub rule: &'static str,
    /// The connection on which the violation happened.
    pub connection: ConnId,
    /// A sentence that says what the initiator did.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} on connection {}: {}", self.rule, self.connection.0, self.text)
    }
}

/// Violations by one PDU: the name of the rule, and an explanation.
pub(super) type Breaches = Vec<(&'static str, String)>;

/// Adds a violation unless `good`.
pub(super) fn demand(
    breaches: &mut Breaches,
    good: bool,
    rule: &'static str,
    text: impl FnOnce() -> String,
) {
    if !good {
        breaches.push((rule, text()));
    }
}
