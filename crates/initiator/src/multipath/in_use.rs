//! The paths that requests go to.

use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use iscsi_multipath::PathId;

impl<C: Carrier> Paths<C> {
    /// The best that there are, but for those that are being let go.
    pub(crate) fn in_use(&self) -> Vec<(PathId, C)> {
        let (state, now) = (self.lock(), now());
        let open = state.paths.open().iter();
        let takes = |id| !state.selector.is_closing(id) && state.selector.is_used(id, now);
        open.filter(|(id, _)| takes(*id)).cloned().collect()
    }

    /// So many of them to let go, of which one stays: the youngest, which were added last. One that is kept at a port of
    /// less use would be opened again, and carries nothing.
    pub(super) fn surplus(&self, fewer: u32) -> Vec<PathId> {
        let mut ids: Vec<_> = self.in_use().into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        let kept = ids.len().saturating_sub(fewer as usize).max(1);
        ids.split_off(kept.min(ids.len()))
    }
}
