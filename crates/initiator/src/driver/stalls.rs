//! Detects connections that stand still: those whose path drops long packets, and those whose target host
//! acknowledges nothing while other paths of the disk answer. Closes them.
//!
//! A dead link, a target that is gone and a busy disk look the same to the initiator. So a trial over separate
//! connections finds out whether the path is the cause
//! ([`StartTrial`](crate::state::segment_limits::StartTrial)). During the trial the connection stays open,
//! because it may recover. If the trial shows that the path drops long packets, a connection that stands still
//! on this path is closed, and the next connection uses shorter segments.

use iscsi_pdu::Cid;
use iscsi_session::TransportError;

use super::links::Links;
use super::measure::tuner::Tuner;
use super::transports::Transport;
use crate::driver::connector::{Reach, Segments};

impl Links {
    /// Starts a trial of the path of each connection that stands still. Returns the connections to close: those
    /// on paths that are known to drop long packets. `awaited` is the number of bytes of read data still to
    /// come.
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

    /// Returns the connections to close because the target's host acknowledges nothing, if `others_answer` returns
    /// that the disk has answers over other portals meanwhile. Otherwise the connection waits for the time limit of
    /// its NOP-Out (RFC 7143 §11.18), because the link may work again soon, and nothing could be done without it.
    pub(super) fn unacknowledged(
        &self,
        others_answer: impl Fn() -> bool,
    ) -> Vec<(Cid, TransportError)> {
        let is_silent = |transport: &&Transport| {
            transport.is_logged_in && transport.tuner().is_some_and(Tuner::is_host_silent)
        };
        let silent: Vec<_> =
            self.transports.iter().filter(is_silent).map(|transport| transport.cid).collect();
        if silent.is_empty() || !others_answer() {
            return Vec::new();
        }
        let why = "the host of the target acknowledges nothing, and other paths answer";
        silent.into_iter().map(|cid| (cid, TransportError::Io(why.to_owned()))).collect()
    }
}
