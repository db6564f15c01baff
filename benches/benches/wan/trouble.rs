//! The error of the bench.

/// An error, as readable text.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;
