//! Defines limits that the ranges of several options share.

use std::time::Duration;

/// Upper limit of pauses and time limits.
pub(super) const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);
