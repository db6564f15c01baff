//! Paths that have something under way and answer nothing: others come before them.
//!
//! A path falls silent by time alone, so that no event tells of it.

use crate::multipath::paths::{Paths, now};
use iscsi_multipath::PathId;

impl Paths {
    /// Whether nothing is answered over a path.
    pub(super) fn is_silent(&self, path: PathId) -> bool {
        self.lock().requests.paths().is_silent(path, now())
    }

    /// Gives paths to those that wait, if time alone has made one free: another one may have fallen silent. Says
    /// whether there are requests at all.
    pub(super) fn look_again(&self) -> bool {
        self.handle_timeout();
        let state = self.lock();
        state.requests.has_queue() || state.requests.paths().has_requests()
    }
}
