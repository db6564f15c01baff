//! Holds the inputs of every policy, and its decision about the socket.

use super::buffers::{self, Side};
use super::connections;
use crate::limits::Limits;
use crate::link::model::{LinkModel, Measurement};
use crate::plan::{Buffer, Choice};
use crate::tuning::{Sends, Tuning};

/// The decision of a policy about the socket.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) send_buffer: Choice<Buffer>,
    pub(super) receive_buffer: Choice<Buffer>,
    pub(super) no_delay: Choice<bool>,
    pub(super) sends: Choice<Sends>,
    pub(super) cork: Choice<bool>,
    pub(super) send_size: Choice<Option<u32>>,
    pub(super) not_sent_low_water: Choice<Option<u32>>,
    pub(super) receive_low_water: Choice<Option<u32>>,
}

/// The inputs of every policy.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    pub(super) link: LinkModel,
    pub(super) send: Side,
    pub(super) receive: Side,
    pub(super) tuning: &'a Tuning,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(measurement: &Measurement, limits: &Limits, tuning: &'a Tuning) -> Self {
        let link = LinkModel::new(measurement, tuning);
        Self { link, send: Side::send(limits), receive: Side::receive(limits), tuning }
    }

    /// Returns the bytes that one connection can have in flight with this send buffer.
    pub(super) fn reach(&self, send_buffer: &Choice<Buffer>) -> u64 {
        send_buffer.value.bytes().unwrap_or(self.send.reach)
    }

    /// Returns the bytes that fill the link, but at most those that the buffers of one connection allow in
    /// the direction that allows more.
    pub(super) fn in_flight(&self, decision: &Decision, measurement: &Measurement) -> u64 {
        let sends = self.reach(&decision.send_buffer).min(connections::peer_reach(measurement));
        let receives = decision.receive_buffer.value.bytes().unwrap_or(self.receive.reach);
        self.link.max_benefit().min(sends.max(receives))
    }
}

impl Decision {
    /// Leaves all options of the socket to the kernel, except for `TCP_NODELAY`, without which no initiator is
    /// usable.
    pub(super) fn untouched() -> Self {
        let left = "left to the kernel, as asked for";
        Self {
            send_buffer: Choice::new(Buffer::Autotuned, left),
            receive_buffer: Choice::new(Buffer::Autotuned, left),
            no_delay: Choice::new(true, "a command must not wait for an acknowledgement"),
            sends: Choice::new(Sends::ManyPages, "as the caller hands them in"),
            cork: Choice::new(false, left),
            send_size: Choice::new(None, left),
            not_sent_low_water: Choice::new(None, left),
            receive_low_water: Choice::new(None, left),
        }
    }

    /// Applies the user's own settings, which take precedence over any policy.
    pub(super) fn with_wishes(mut self, tuning: &Tuning) -> Self {
        const ASKED: &str = "as asked for";
        if let Some(bytes) = tuning.send_buffer {
            self.send_buffer = buffers::asked_for(bytes);
            self.not_sent_low_water = Choice::new(None, "the send buffer is as asked for");
        }
        if let Some(bytes) = tuning.receive_buffer {
            self.receive_buffer = buffers::asked_for(bytes);
            self.receive_low_water = Choice::new(None, "the receive buffer is as asked for");
        }
        if let Some(no_delay) = tuning.no_delay {
            self.no_delay = Choice::new(no_delay, ASKED);
        }
        if let Some(sends) = tuning.sends {
            self.sends = Choice::new(sends, ASKED);
        }
        if tuning.sends == Some(Sends::OnePage) {
            self.cork = Choice::new(false, "each page goes by itself");
            self.send_size = Choice::new(None, "each page goes by itself");
        }
        self
    }
}
