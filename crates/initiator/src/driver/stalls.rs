//! Connections that stand still as if their path swallowed long packets.
//!
//! A dead link, a target that is gone or a busy disk look the same from here. So a trial over connections of
//! its own finds out whether it is the path ([`StartTrial`](crate::state::segment_limits::StartTrial)), and a
//! connection that may still move is left alone. Once the path is known to swallow long packets, a connection
//! that stands still on it is given up, and the next one has shorter segments.

use iscsi_pdu::Cid;
use iscsi_session::TransportError;

use super::links::Links;
use crate::driver::connector::{Reach, Segments};

impl Links {
    /// Starts a trial of the path of each connection that stands still; returns the connections to give up.
    /// `awaited` is the number of bytes of read data still to come.
    pub(super) fn stalled(&self, reach: &Reach, awaited: usize) -> Vec<(Cid, TransportError)> {
        let mut lost = Vec::new();
        let Some(start) = &reach.start_trial else { return lost };
        let Segments::AsKnown(limits) = &reach.connector.segments else { return lost };
        for transport in self.transports.iter().filter(|transport| transport.is_logged_in) {
            let Some(tuner) = transport.tuner() else { continue };
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
        lost
    }
}
