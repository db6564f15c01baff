//! Figures for the tests of this folder.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::result::{Figure, LinkConditions, Outcome};

/// Returns a complete figure over 100 Mbit/s.
pub(super) fn figure(who: &str, rtt_ms: f64, goodput_mbit_per_s: f64) -> Figure {
    let goodput_mbit_per_s = Some(goodput_mbit_per_s);
    Figure { goodput_mbit_per_s, ..outcome(who, rtt_ms, Outcome::Complete) }
}

/// Returns a figure without a value.
pub(super) fn outcome(who: &str, rtt_ms: f64, outcome: Outcome) -> Figure {
    Figure {
        link: LinkConditions { rtt_ms, rate_mbit_per_s: Some(100.0), loss_percent: 0.0 },
        who: who.into(),
        parameters: BTreeMap::new(),
        outcome,
        bytes: 64 << 20,
        seconds: None,
        goodput_mbit_per_s: None,
        steady_mbit_per_s: None,
        start_seconds: None,
        samples_mbit_per_s: Vec::new(),
        carried: None,
        allocated_bytes: None,
        detail: Value::Null,
    }
}
