//! The report of a command.

use serde_json::{Map, Value, json};

use crate::error::Error;

/// An answer, for people and for programs.
#[derive(Debug)]
pub struct Report {
    /// The text for people: whole lines.
    pub text: String,
    /// The members of the object for programs.
    pub members: Map<String, Value>,
    /// The reason why the answer is not complete; `None` if it is.
    pub end: Option<Error>,
}

impl Report {
    /// Creates a complete answer. If `members` is no object, the object for programs gets no members.
    #[must_use]
    pub fn new(text: String, members: Value) -> Self {
        let members = if let Value::Object(members) = members { members } else { Map::new() };
        Self { text, members, end: None }
    }

    /// Sets the reason why the answer is not complete, if there is one.
    #[must_use]
    pub fn ending(mut self, end: Option<Error>) -> Self {
        self.end = end;
        self
    }

    /// Returns the answer of a command as one object. `complete` says whether it is complete; if so, `error`
    /// and `kind` are null.
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
