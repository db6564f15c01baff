//! Requests that a port has refused because of its state towards the unit (SPC-4 §5.11.2).
//!
//! Where the unit tells of its target port groups, such a path stays open, and is used again as soon as the unit
//! says that its port serves it. Where it does not, the session is of no use and gives way: see
//! [`standby`](super::standby).

use crate::error::Error;
use crate::multipath::access::Access;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::PathId;

impl<C: Carrier> Paths<C> {
    /// The unit tells of its target port groups, and somebody asks for them whenever a port refuses a request; or
    /// it does not any more.
    pub(crate) fn follow_access(&self, follows: bool) {
        self.lock().paths.follow_access(follows);
    }

    /// Takes in how a request has ended over a path; whether it was a READ or WRITE. Says whether its port has refused
    /// it, and the unit is asked for the states of all by that.
    pub(super) fn is_refused_by_port(&self, path: PathId, error: &Error, is_plain: bool) -> bool {
        let suspected = || Access::suspected(error).filter(|_| is_plain && self.others_serve(path));
        let Some(access) = Access::refused(error).or_else(suspected) else { return false };
        if !self.lock().paths.call_for_access() {
            return false;
        }
        self.set_access([(path, access)]);
        self.attention().notify_one();
        true
    }

    /// Whether the unit is served over another path than this one.
    pub(super) fn others_serve(&self, path: PathId) -> bool {
        self.lock().schedule.others_serve(path)
    }

    /// Whether a port has refused a request since the last call.
    pub(crate) fn take_call_for_access(&self) -> bool {
        self.lock().paths.take_call_for_access()
    }
}
