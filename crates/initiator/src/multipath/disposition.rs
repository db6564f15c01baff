//! What follows from the end of an attempt of a disk's request, by the state of the other paths.

use std::time::Duration;

use iscsi_multipath::PathId;
use iscsi_multipath::requests::disposition::{
    Disposition, Facts, Limit, Scope, dispose, refuses_by_port,
};
use iscsi_multipath::requests::end::End;
use iscsi_pdu::scsi::AccessState;

use crate::error::Error;
use crate::multipath::attempts::Attempts;
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::{Paths, now};
use crate::unit::retry::ABORTED_LIMIT;

impl<C: Carrier> Paths<C> {
    /// Decides what follows from the end of an attempt over `path`. `is_plain` says that any disk knows the command.
    ///
    /// If the port has refused the command, the paths learn that, and the unit is asked for the states of all ports. If
    /// no port serves the unit, other ones are looked for.
    pub(super) fn dispose(
        &self,
        path: PathId,
        error: &Error,
        is_plain: bool,
        attempts: &mut Attempts<'_, C>,
    ) -> Disposition {
        let end = error.end();
        let mut state = self.lock();
        let facts = Facts {
            is_plain,
            refusals_left: attempts.refusals_left(),
            follows_access: state.paths.follows_access(),
            others_serve: state.selector.others_serve(path, now()),
            has_other_path: !state.selector.is_last(path),
            looks_for_ports: state.paths.has_other_ports(),
            ..Facts::default()
        };
        let disposition = dispose(end, Scope::Disk, &facts);
        let is_refused = refuses_by_port(end, &facts);
        if is_refused {
            state.paths.call_for_access();
            attempts.count_refusal();
        }
        let awaits_port = matches!(disposition, Disposition::Pause(_))
            && matches!(end, End::Port(_) | End::OtherUnit)
            && end != End::Port(AccessState::Transitioning);
        if awaits_port {
            state.paths.call_for_port();
        }
        drop(state);
        if is_refused {
            let access = error.refusing_port().or_else(|| error.suspected_port());
            self.set_access(access.map(|access| (path, access)));
        }
        if is_refused || awaits_port {
            self.attention().notify_one();
        }
        disposition
    }

    /// Returns how long a request is retried.
    pub(super) fn retry_limit(&self, limit: Limit) -> Duration {
        let policy = self.policy();
        match limit {
            Limit::RetryTimeout | Limit::Transition | Limit::Pauses => policy.patience,
            Limit::AbortedTimeout => policy.patience.min(ABORTED_LIMIT),
        }
    }
}
