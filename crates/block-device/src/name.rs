//! By what a later process recognizes a device.

use std::time::Duration;

/// The name by which a later process recognizes a device. An address is no part of it, because addresses change.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceName {
    /// The name, one line of text.
    pub text: String,
    /// The capacity in bytes, if a device of another capacity is another one; otherwise 0.
    pub bytes: u64,
    /// Whether no other device has had this name, or gets it. The number of a file that is removed goes to the next one.
    pub is_unique: bool,
}

impl DeviceName {
    /// Creates a name that no other device has.
    pub const fn new(text: String, bytes: u64) -> Self {
        Self { text, bytes, is_unique: true }
    }

    /// Sets whether no other device has had this name, or gets it.
    #[must_use]
    pub const fn with_unique(mut self, is_unique: bool) -> Self {
        self.is_unique = is_unique;
        self
    }
}

/// The name of what a device holds now: it is another one after each write, by this process or another one.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ContentName {
    /// The name, one line of text.
    pub text: String,
    /// The capacity in bytes.
    pub bytes: u64,
    /// How long a write that comes now may leave the name as it is.
    pub settles_in: Duration,
}

impl ContentName {
    /// Creates a name that changes with each write after `settles_in`.
    pub const fn new(text: String, bytes: u64, settles_in: Duration) -> Self {
        Self { text, bytes, settles_in }
    }
}
