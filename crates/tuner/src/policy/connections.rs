//! Chooses the number of connections, from the limits of a single connection.

use crate::limits::BBR;
use crate::link::model::{LinkModel, Measurement};
use crate::plan::Choice;
use crate::size::Size;

/// Largest number of connections: more would crowd out other traffic.
const MAX: u64 = 16;
/// Window that the receive buffer of a Linux target with default settings allows, bytes: half of the 6 MiB of
/// `tcp_rmem`.
const PEER_REACH: u64 = 3 << 20;

/// Returns the largest window that the peer is known or assumed to offer, bytes.
pub(super) fn peer_reach(measurement: &Measurement) -> u64 {
    measurement.peer_window.map_or(PEER_REACH, |window| window.max(PEER_REACH))
}

pub(super) fn choose(
    link: &LinkModel,
    reach: u64,
    measurement: &Measurement,
    congestion_control: Option<&str>,
) -> Choice<u32> {
    if link.rtt.is_none() {
        return Choice::new(1, "the round-trip time is not measured yet");
    }
    let need = link.max_benefit();
    let peer = peer_reach(measurement);
    let wall = reach.min(peer).max(1);
    let by_window = need.div_ceil(wall);
    let ceiling = link.loss_ceiling().filter(|_| congestion_control != Some(BBR));
    let by_loss = ceiling.map_or(1, |ceiling| {
        link.bandwidth.bits_per_second().div_ceil(ceiling.bits_per_second().max(1))
    });
    let wanted = by_window.max(by_loss);
    let reason = match (wanted, by_loss > by_window) {
        (1, _) => format!("one carries the {} that the link holds", Size(need)),
        (_, true) => {
            format!("loss of {:.3} % keeps each at a share of the link", link.loss * 100.0)
        }
        (_, false) if peer < reach => {
            format!("the link holds {}, the peer's window reaches {}", Size(need), Size(peer))
        }
        (_, false) => {
            format!("the link holds {}, a send buffer reaches {}", Size(need), Size(reach))
        }
    };
    Choice::new(u32::try_from(wanted.min(MAX)).unwrap_or(1), reason)
}
