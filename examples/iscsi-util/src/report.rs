//! The report of a command.

use serde_json::{Map, Value, json};

use crate::error::Error;

/// The result of a command, as readable text and as JSON.
#[derive(Debug)]
pub struct Report {
    /// The readable text: whole lines.
    pub text: String,
    /// The members of the JSON object.
    pub members: Map<String, Value>,
    /// The error if the result is not complete; `None` if it is complete.
    pub end: Option<Error>,
}

impl Report {
    /// Creates a complete result. If `members` is not a JSON object, it is ignored: then the JSON object has
    /// only the members that all commands have.
    #[must_use]
    pub fn new(text: String, members: Value) -> Self {
        let members = if let Value::Object(members) = members { members } else { Map::new() };
        Self { text, members, end: None }
    }

    /// Sets the error if the result is not complete.
    #[must_use]
    pub fn ending(mut self, end: Option<Error>) -> Self {
        self.end = end;
        self
    }

    /// Returns the result as a JSON object. The member `complete` says whether the result is complete. If it
    /// is, `error` and `kind` are null.
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
