//! How many files the program may have open: each client and each session is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that clients leave to the sessions, to be opened anew when they are lost, and to everything else.
const OTHERS: usize = 96;

/// Raises the limit as far as that may be, and says how many clients there is room for, at least 1.
#[must_use]
pub(crate) fn max_clients() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return usize::MAX };
    // The soft limit is for programs that wait by select(2).
    let limit = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OTHERS).max(1)
}
