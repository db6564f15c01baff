//! What the ranges of several options have in common.

use std::time::Duration;

/// No pause or limit counts as longer.
pub(super) const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);
