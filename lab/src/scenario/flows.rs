//! Flows side by side that are ruled at the initiator, and orders to them while they run.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Direction, Who};
use crate::size::Size;

/// Flows that share a rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// What it shows, a few words.
    pub name: String,
    /// Whose they are: `block-copy`, one process with a job file, or `open-iscsi`, a disk each, ruled by
    /// `tc htb` before the link.
    pub who: Who,
    /// Which way.
    #[serde(default)]
    pub direction: Direction,
    /// Seconds from the first bytes of all of them to the end.
    pub seconds: u64,
    /// What all have together, such as `10mbit`, or `off`.
    pub rate: String,
    /// Each flow has a unit of its own, from LUN 0 on, behind a portal of its own.
    pub flows: Vec<Flow>,
    /// Bytes that a flow of block-copy writes at most.
    pub bytes: Size,
    /// What happens meanwhile, in order.
    #[serde(default)]
    pub orders: Vec<Order>,
    /// What each flow should have before the first order, between two, and after the last, Mbit/s. Nothing
    /// is expected of a number below 0.
    pub expect: Vec<Vec<f64>>,
}

/// One flow.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// What it is called, a word.
    pub name: String,
    /// What it is guaranteed, and may have at most; without them all that there is.
    pub share: Option<Share>,
}

/// What a class has.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Guaranteed.
    pub rate: String,
    /// At most.
    pub ceil: String,
}

/// Something that happens while the flows run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Seconds after the first bytes.
    pub at: u64,
    /// `rate RATE`, `rate off`, `pause FLOW` or `resume FLOW`.
    pub order: String,
}

/// What an order says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Deed {
    /// All have another rate together.
    Rate(String),
    /// A flow stops.
    Pause(String),
    /// A flow goes on.
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
    /// Says what makes no sense.
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
