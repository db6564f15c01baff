//! Why something cannot be done.

/// Why something cannot be done, for people.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;
