//! Breaches of rules.

use std::fmt;

use crate::conn_id::ConnId;

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// The connection on which it happened.
    pub connection: ConnId,
    /// The event, as a sentence.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} on connection {}: {}", self.rule, self.connection.0, self.text)
    }
}

/// Breaches of one PDU: rules and explanations.
pub(super) type Breaches = Vec<(&'static str, String)>;

/// Adds a breach unless `good`.
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
