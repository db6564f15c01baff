//! The result of a negotiation, derived from the keys that both sides sent (RFC 7143 §6.2).

use std::collections::BTreeMap;

use crate::text::{boolean, number};

/// The side that sent a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Initiator,
    Target,
}

/// The negotiated values that the rules use. Before a negotiation they are the defaults of RFC 7143 §13.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) initial_r2t: bool,
    pub(super) immediate_data: bool,
    pub(super) first_burst: u32,
    pub(super) max_burst: u32,
    pub(super) error_recovery: u32,
    pub(super) protocol_level: u32,
    pub(super) target_segment: u32,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            initial_r2t: true,
            immediate_data: true,
            first_burst: 65_536,
            max_burst: 262_144,
            error_recovery: 0,
            protocol_level: 1,
            target_segment: 8192,
        }
    }
}

/// The keys that were sent, and the values that were agreed on.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    offers: BTreeMap<String, Side>,
    pub(super) values: Values,
}

impl Negotiation {
    /// Records that one side sent `key=value`: an offer, or the answer to an offer.
    pub(super) fn record_key(&mut self, side: Side, key: &str, value: &str) {
        if key == "MaxRecvDataSegmentLength" {
            if side == Side::Target {
                set(&mut self.values.target_segment, number(value));
            }
            return;
        }
        let answers = self.offers.get(key).is_some_and(|offerer| *offerer != side);
        // The offer ImmediateData=No decides the value; the answer may be omitted.
        if answers || key == "ImmediateData" && value == "No" {
            self.apply(key, value);
        }
        self.offers.insert(key.into(), side);
    }

    fn apply(&mut self, key: &str, value: &str) {
        let values = &mut self.values;
        match key {
            "InitialR2T" => set(&mut values.initial_r2t, boolean(value)),
            "ImmediateData" => set(&mut values.immediate_data, boolean(value)),
            "FirstBurstLength" => set(&mut values.first_burst, number(value)),
            "MaxBurstLength" => set(&mut values.max_burst, number(value)),
            "ErrorRecoveryLevel" => set(&mut values.error_recovery, number(value)),
            "iSCSIProtocolLevel" => set(&mut values.protocol_level, number(value)),
            _ => {}
        }
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}
