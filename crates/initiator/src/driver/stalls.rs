//! Connections that stand still as on a path that swallows long packets.
//!
//! Whether it is the path is found out elsewhere, over connections of their own ([`StartTrial`](crate::state::segment_limits::StartTrial)): a dead link, a target that is
//! gone or a busy disk look the same from here, and a connection that may still move is left alone. Once the path is known to
//! swallow long packets, a connection that stands still on it is given up: the next one has shorter segments.

use iscsi_session::TransportError;

use super::Driver;
use crate::driver::connector::Segments;

impl Driver {
    /// Has the path of a connection tried that stands still, or gives the connection up.
    pub(super) fn look_at_stalls(&mut self) {
        let Some(start) = &self.start_trial else { return };
        let Segments::AsKnown(limits) = &self.connector.segments else { return };
        let mut lost = Vec::new();
        for transport in self.transports.iter().filter(|transport| transport.is_logged_in) {
            let Some(tuner) = transport.tuner() else { continue };
            let awaited = self.session.awaited_data();
            let Some(stall) = tuner.stall().filter(|stall| stall.may_be_of_path(awaited)) else {
                continue;
            };
            if let Some(limit) = limits.get(tuner.address().ip()) {
                lost.push((transport.cid, TransportError::PathMtu(limit.reason())));
            } else if let Some(turn) = limits.begin_trial(tuner.address()) {
                tracing::info!(
                    ?stall,
                    "a connection stands still: trying whether full segments arrive"
                );
                start(turn);
            }
        }
        for (cid, why) in lost {
            self.lose(cid, why);
        }
    }
}
