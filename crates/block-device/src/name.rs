//! Names by which a later process recognizes a device or its data.

use std::time::Duration;

/// The name by which a later process recognizes a device. It contains no address, because addresses change.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceName {
    /// The name, one line of text.
    pub text: String,
    /// The capacity in bytes, if a device whose capacity differs must count as another device; otherwise 0.
    pub bytes: u64,
    /// Whether the name belongs to this device alone: no other device had it before, and none will get it later.
    /// `false`, for example, for the inode number of a file, which is used again after the file is removed.
    pub is_unique: bool,
}

impl DeviceName {
    /// Creates a name that no other device has.
    pub const fn new(text: String, bytes: u64) -> Self {
        Self { text, bytes, is_unique: true }
    }

    /// Sets [`is_unique`](Self::is_unique): whether no other device had this name before, and none will get it later.
    #[must_use]
    pub const fn with_unique(mut self, is_unique: bool) -> Self {
        self.is_unique = is_unique;
        self
    }
}

/// Name of the data that a device holds now. Each write, by this process or another one, changes the name.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ContentName {
    /// The name, one line of text.
    pub text: String,
    /// The capacity in bytes.
    pub bytes: u64,
    /// Time for which the name may stay the same after a write.
    pub settles_in: Duration,
}

impl ContentName {
    /// Creates a name that changes with each write after `settles_in`.
    pub const fn new(text: String, bytes: u64, settles_in: Duration) -> Self {
        Self { text, bytes, settles_in }
    }
}
