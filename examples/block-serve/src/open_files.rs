//! Limits the number of clients by the limit of open files: each client and each session is an open file.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Number of files that are kept free for sessions, which must be able to reconnect, and for everything else.
const OTHERS: usize = 96;

/// Raises the limit of open files as far as possible. Returns the number of clients that it has room for, at
/// least 1.
#[must_use]
pub(crate) fn max_clients() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return usize::MAX };
    // The soft limit protects programs that use select(2). This program does not, so it raises the limit.
    let limit = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OTHERS).max(1)
}
