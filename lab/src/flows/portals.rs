//! Gives each flow its own portal, so that the bytes of the flow can be counted by its port.

use crate::scenario::Flows;
use crate::testbed::{FAR, TARGET};

/// Port of the first flow.
const PORT: u16 = 3260;

/// Returns the words for `lab/lio` that give each flow its portal.
pub fn words(flows: &Flows) -> Vec<String> {
    (1..flows.flows.len()).map(|index| format!("portal={}", portal(index))).collect()
}

pub(super) fn portal(index: usize) -> String {
    format!("{FAR}:{}", port(index))
}

pub(super) fn port(index: usize) -> u16 {
    PORT + u16::try_from(index).unwrap_or_default()
}

pub(super) fn url(index: usize) -> String {
    format!("iscsi://{}/{TARGET}/{index}", portal(index))
}
