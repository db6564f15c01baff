//! Tracks lost and leaving sessions of a disk, which are not paths.

use iscsi_multipath::PortalId;
use iscsi_multipath::topology::{Lost as LostSession, Why};
use iscsi_pdu::Isid;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::paths::path::Path;
use crate::multipath::supervisor::reinstatement::Lost;

/// Sessions that are not paths, and whose writes or registrations may still be at the target.
pub(super) struct LostSessions {
    /// Sessions that should reconnect.
    pub(super) reconnecting: Vec<Lost>,
    /// Sessions that do not reconnect. Their writes are being settled by logins that open no session of the
    /// disk.
    pub(super) settling: Vec<Path>,
    /// Sessions that are not needed, until they were logged out or are needed again.
    pub(super) leaving: Vec<Path>,
    /// Sessions that are gone and still registered, because unregistering might have ended a reservation.
    pub(super) still_registered: Vec<Path>,
    /// Error of the last attempt to make the target drop the writes of a lost session, if the attempt failed.
    pub(super) unsettled: Option<Error>,
    /// Sessions whose writes could not be settled. The attempts are repeated at `settle_next`.
    pub(super) given_up: Vec<Lost>,
    pub(super) settle_next: Instant,
    /// When to check again whether a write waits for the sessions in `given_up`.
    pub(super) check_waiting_at: Instant,
}

impl LostSessions {
    pub(super) fn new() -> Self {
        Self {
            reconnecting: Vec::new(),
            settling: Vec::new(),
            leaving: Vec::new(),
            still_registered: Vec::new(),
            unsettled: None,
            given_up: Vec::new(),
            settle_next: Instant::now(),
            check_waiting_at: Instant::now(),
        }
    }

    pub(super) fn sessions(&self) -> Vec<LostSession> {
        let lost =
            |lost: &Lost| LostSession { isid: isid(lost), portal: PortalId(lost.path().portal) };
        self.reconnecting.iter().map(lost).collect()
    }

    /// Returns the lost session to which `why` refers, if `why` is a reconnect.
    pub(super) fn get(&self, why: Why) -> Option<&Lost> {
        self.reconnecting.iter().find(|lost| why == Why::Lost(isid(lost)))
    }

    /// Removes and returns the lost session to which `why` refers, if `why` is a reconnect.
    pub(super) fn take(&mut self, why: Why) -> Option<Lost> {
        let at = self.reconnecting.iter().position(|lost| why == Why::Lost(isid(lost)))?;
        Some(self.reconnecting.swap_remove(at))
    }

    pub(super) const fn are_none(&self) -> bool {
        self.reconnecting.is_empty() && self.settling.is_empty() && self.given_up.is_empty()
    }

    /// Returns whether writes of lost sessions are being settled, or sessions with unsettled writes are being
    /// logged out.
    pub(super) fn are_settling(&self) -> bool {
        let lost = self.reconnecting.iter().map(Lost::path);
        let mut all = lost.chain(&self.settling).chain(&self.leaving);
        all.any(|path| !path.unit.session().is_settled())
    }

    /// Returns when to check whether a write waits for the sessions in `given_up`. The check is periodic
    /// because no event reports writes of another disk, or writes that began to wait before the last attempt.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let at = self.settle_next.max(self.check_waiting_at);
        (!self.given_up.is_empty()).then_some(at)
    }
}

fn isid(lost: &Lost) -> Isid {
    lost.path().unit.session().isid()
}
