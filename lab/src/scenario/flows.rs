//! Concurrent flows whose rates are limited at the initiator, and scripted changes while they run.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Direction, Who};
use crate::size::Size;

/// Flows that share a rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Subject of the flows, a few words.
    pub name: String,
    /// The program: `block-copy`, one process with a job file, or `open-iscsi`, one disk per flow, limited by
    /// `tc htb` before the link.
    pub who: Who,
    /// Direction of the bytes.
    #[serde(default)]
    pub direction: Direction,
    /// Seconds from the time at which all flows have moved bytes to the end.
    pub seconds: u64,
    /// Total rate of all flows, such as `10mbit`, or `off`.
    pub rate: String,
    /// The flows. Each has a unit of its own, from LUN 0 on, behind a portal of its own.
    pub flows: Vec<Flow>,
    /// Largest number of bytes that a flow of block-copy writes.
    pub bytes: Size,
    /// The scripted changes, sorted by time.
    #[serde(default)]
    pub orders: Vec<Order>,
    /// Rates that the flows should have, Mbit/s: a list for each period (before the first change, between changes,
    /// after the last one), with a rate for each flow. A negative number stands for any rate.
    pub expect: Vec<Vec<f64>>,
}

/// A flow.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name of the flow, one word.
    pub name: String,
    /// Guaranteed and highest rate of the flow; by default both are the total rate.
    pub share: Option<Share>,
}

/// Rates of a class.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Guaranteed rate.
    pub rate: String,
    /// Highest rate.
    pub ceil: String,
}

/// A scripted change while the flows run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Seconds after the first bytes of all flows.
    pub at: u64,
    /// The change: `rate RATE`, `rate off`, `pause FLOW` or `resume FLOW`.
    pub order: String,
}

/// The action of a scripted change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Deed {
    /// Changes the total rate.
    Rate(String),
    /// Pauses a flow.
    Pause(String),
    /// Resumes a flow.
    Resume(String),
}

impl FromStr for Deed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["rate", rate] => Ok(Self::Rate(rate.to_owned())),
            ["pause", flow] => Ok(Self::Pause(flow.to_owned())),
            ["resume", flow] => Ok(Self::Resume(flow.to_owned())),
            _ => Err(format!("`{text}` is not `rate RATE`, `pause FLOW` or `resume FLOW`")),
        }
    }
}

impl Flows {
    /// Checks the flows. The error names the first inconsistency.
    pub(super) fn check(&self) -> Result<(), String> {
        if !matches!(self.who, Who::BlockCopy | Who::OpenIscsi) {
            return Err("`who` is block-copy or open-iscsi".to_owned());
        }
        if self.name.parse::<u32>().is_ok() {
            return Err("`name` is a number, which says how many flows there are".to_owned());
        }
        if self.flows.is_empty() {
            return Err("`flows` is empty".to_owned());
        }
        let mut before = 0;
        for order in &self.orders {
            if order.at <= before || order.at >= self.seconds {
                return Err("`at` of `orders` wants to rise, between 0 and `seconds`".to_owned());
            }
            before = order.at;
            if let Deed::Pause(name) | Deed::Resume(name) = order.order.parse()?
                && !self.flows.iter().any(|flow| flow.name == name)
            {
                return Err(format!("`orders`: there is no flow `{name}`"));
            }
        }
        let is_whole = self.expect.len() == self.orders.len() + 1
            && self.expect.iter().all(|phase| phase.len() == self.flows.len());
        if !is_whole {
            return Err(
                "`expect` has a list for each phase, with a number for each flow".to_owned()
            );
        }
        Ok(())
    }
}
