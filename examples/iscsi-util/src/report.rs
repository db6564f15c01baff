//! What came of it.

use serde_json::{Map, Value, json};

use crate::error::Error;

/// An answer, for people and for programs.
#[derive(Debug)]
pub struct Report {
    /// What people read: whole lines.
    pub text: String,
    /// The members of the object for programs.
    pub members: Map<String, Value>,
    /// Why the answer is not complete; `None` if it is.
    pub end: Option<Error>,
}

impl Report {
    /// A complete answer. Of what is no object, programs get nothing.
    #[must_use]
    pub fn new(text: String, members: Value) -> Self {
        let members = if let Value::Object(members) = members { members } else { Map::new() };
        Self { text, members, end: None }
    }

    /// The same answer, not complete if there is a reason.
    #[must_use]
    pub fn ending(mut self, end: Option<Error>) -> Self {
        self.end = end;
        self
    }

    /// The answer of this subcommand as one object: `complete` says whether it is all, `error` and
    /// `kind` are null if so.
    #[must_use]
    pub fn to_json(&self, command: &str) -> Value {
        let end = self.end.as_ref();
        let mut object = self.members.clone();
        object.extend([
            ("command".to_owned(), json!(command)),
            ("complete".to_owned(), json!(end.is_none())),
            ("error".to_owned(), json!(end.map(ToString::to_string))),
            ("kind".to_owned(), json!(end.map(|error| error.kind().name()))),
        ]);
        Value::Object(object)
    }
}
