//! The error of the bench.

/// An error, as text for people.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;
