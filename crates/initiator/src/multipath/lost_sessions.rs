//! The sessions of a disk that are no paths any more.

use iscsi_multipath::PortalId;
use iscsi_multipath::topology::{Lost as LostSession, Why};
use iscsi_pdu::Isid;
use tokio::time::Instant;

use crate::error::Error;
use crate::multipath::path::Path;
use crate::multipath::reinstatement::Lost;

/// Sessions that are no paths any more, and what they may have left at the target.
pub(super) struct LostSessions {
    /// Those that should reconnect.
    pub(super) reconnecting: Vec<Lost>,
    /// Those whose writes are settled in other ways.
    pub(super) settling: Vec<Path>,
    /// Those that are not needed any more, until their logout has ended or is not due any more.
    pub(super) leaving: Vec<Path>,
    /// Those that are gone, and still registered because a reservation might have ended with that.
    pub(super) still_registered: Vec<Path>,
    /// Why what a lost session has left was not settled at the last try.
    pub(super) unsettled: Option<Error>,
    /// Those that left it, and when they are tried again.
    pub(super) given_up: Vec<Lost>,
    pub(super) settle_next: Instant,
    /// When it is looked whether a write waits for that.
    pub(super) look_at_waiting: Instant,
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
            look_at_waiting: Instant::now(),
        }
    }

    /// Those that should reconnect.
    pub(super) fn sessions(&self) -> Vec<LostSession> {
        let lost =
            |lost: &Lost| LostSession { isid: isid(lost), portal: PortalId(lost.path().portal) };
        self.reconnecting.iter().map(lost).collect()
    }

    /// The one that reconnects, if a session is opened for that reason.
    pub(super) fn get(&self, why: Why) -> Option<&Lost> {
        self.reconnecting.iter().find(|lost| why == Why::Lost(isid(lost)))
    }

    /// Takes out the one that was to reconnect, if a session was opened for that reason.
    pub(super) fn take(&mut self, why: Why) -> Option<Lost> {
        let at = self.reconnecting.iter().position(|lost| why == Why::Lost(isid(lost)))?;
        Some(self.reconnecting.swap_remove(at))
    }

    pub(super) const fn are_none(&self) -> bool {
        self.reconnecting.is_empty() && self.settling.is_empty() && self.given_up.is_empty()
    }

    /// Whether there are tries to settle what lost sessions have left, or sessions leave with something that is not
    /// settled.
    pub(super) fn are_settling(&self) -> bool {
        let lost = self.reconnecting.iter().map(Lost::path);
        let mut all = lost.chain(&self.settling).chain(&self.leaving);
        all.any(|path| !path.unit.session().is_settled())
    }

    /// When it is to be looked whether a write waits for what was given up: it may be one of another disk, of which
    /// no report comes, or have come before the last try.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let at = self.settle_next.max(self.look_at_waiting);
        (!self.given_up.is_empty()).then_some(at)
    }
}

fn isid(lost: &Lost) -> Isid {
    lost.path().unit.session().isid()
}
