//! Scenarios: what to measure, over which links, against which target; TOML that people write.

mod check;
mod direction;
mod failover;
mod fault;
mod flows;
mod goal;
mod mirror;
mod point;
mod stripe;
#[cfg(test)]
mod tests;
mod who;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::size::{Rate, Size};
use crate::target::{Target, Unit};

pub use direction::Direction;
pub use failover::{
    AccessState, Contender, Failover, FailoverRun, Multipath, PATHS, PathDeed, PathOrder, Writes,
};
pub use fault::{Fault, FaultJob, FaultKind, FaultRun, Ordeal, Shape};
pub use flows::{Deed, Flow, Flows, Order, Share};
pub use goal::{Goal, Over, Reason, Start};
pub use mirror::{Load, Mirror, Through};
pub use point::Point;
pub use stripe::{Joiner, Stripe, Striped};
pub use who::Who;

/// A whole scenario.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is about, one line.
    pub title: String,
    /// Seconds that one measurement may take, unless it says otherwise.
    #[serde(default = "default_limit")]
    pub limit: u64,
    /// Kernel modules to load beforehand, such as `tcp_bbr`.
    #[serde(default)]
    pub modules: Vec<String>,
    /// System limits to set on both hosts: `"net.ipv4.tcp_wmem" = "4096 16384 8388608"`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// The target.
    pub target: Target,
    /// The links.
    #[serde(rename = "link")]
    pub links: Vec<Links>,
    /// What to measure over each of them.
    #[serde(default, rename = "measure")]
    pub measures: Vec<Measure>,
    /// What copies by block-copy are to meet over each of them.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
    /// Flows side by side that are ruled at the initiator, over each of them.
    #[serde(default)]
    pub flows: Vec<Flows>,
    /// Disks in use that QEMU mirrors to a unit, over each of them.
    #[serde(default, rename = "mirror")]
    pub mirrors: Vec<Mirror>,
    /// What happens to the paths of a unit with two of them while it is written, over links of each kind.
    #[serde(default, rename = "failover")]
    pub failovers: Vec<Failover>,
    /// The settings of those who are measured beside this project there.
    #[serde(default)]
    pub multipath: Multipath,
    /// Units behind links of their own as one, over links of each kind.
    #[serde(default, rename = "stripe")]
    pub stripes: Vec<Stripe>,
    /// What the figures must reach; a table of their drawing tells which do.
    #[serde(default, rename = "goal")]
    pub goals: Vec<Goal>,
}

fn default_limit() -> u64 {
    300
}

/// Links: all combinations of what the lists hold.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Round-trip times, milliseconds.
    pub rtt_ms: Vec<f64>,
    /// Rates, each way; none is as fast as it can be.
    #[serde(default)]
    pub rate: Vec<Rate>,
    /// Packets lost each way, percent; none is no loss.
    #[serde(default)]
    pub loss: Vec<f64>,
}

/// What a written image holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Bytes of chance; they take as much of the memory.
    #[default]
    Random,
    /// One hole; it takes no memory, but a program that looks for zeros would have an easy time.
    Sparse,
    /// Bytes of chance in an eighth of it, in [`EXTENTS`](crate::images::EXTENTS) extents of one length at even
    /// distances; the rest is holes. It is written to a unit whose file has neither a byte nor memory
    /// before.
    Scattered,
}

/// One kind of measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Who moves the bytes.
    pub who: Who,
    /// The name in the result, if it is to be another; `who = "program"` needs one.
    pub label: Option<String>,
    /// How many bytes; the unit's size if not given.
    pub bytes: Option<Size>,
    /// Seconds to run instead of bytes to move; only iperf3 can.
    pub seconds: Option<u64>,
    /// The unit.
    #[serde(default)]
    pub lun: u16,
    /// Which way.
    #[serde(default)]
    pub direction: Direction,
    /// What a written image holds.
    #[serde(default)]
    pub source: Source,
    /// Words added to the program's command line; `{NAME}` is replaced by what `vary` has for it.
    #[serde(default)]
    pub args: Vec<String>,
    /// The program and its words; for `who = "program"`. `{url}`, `{image}` and `{bytes}` are
    /// replaced.
    #[serde(default)]
    pub program: Vec<String>,
    /// What the result is to say of it.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Lists of values; all their combinations are measured, and the result says which it was.
    #[serde(default)]
    pub vary: BTreeMap<String, Vec<String>>,
    /// Keys of the target for this measurement, over those of the scenario.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// How often.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Seconds it may take.
    pub limit: Option<u64>,
}

fn once() -> u32 {
    1
}

impl Measure {
    /// The name in the result.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or_else(|| self.who.name())
    }

    /// Whether it writes holes to a unit that is made again for it.
    pub fn is_thin(&self) -> bool {
        self.source == Source::Scattered && self.direction == Direction::Write
    }
}

impl Scenario {
    /// Reads a scenario's file.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::Scenario`] with the line if it is no TOML, has
    /// a key that no scenario has, or makes no sense.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| Error::File { path: path.into(), cause })?;
        Self::parse(&text).map_err(|reason| Error::Scenario { path: path.into(), reason })
    }

    /// Reads a scenario's text; the error says what is wrong with it, and where.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Leaves out what is measured by others than these, and other faults.
    ///
    /// # Errors
    /// [`Error::Usage`] if one of them measures nothing here.
    pub fn keep_only(&mut self, names: &[String]) -> Result<(), Error> {
        let measures = self.measures.iter().map(Measure::name);
        let faults = self.faults.iter().map(|fault| fault.what.name());
        let flows = self.flows.iter().map(|flows| flows.who.name());
        let mirrors = self.mirrors.iter().map(|mirror| mirror.through.name());
        let failovers = self.failovers.iter().flat_map(|failover| &failover.runs);
        let failovers = failovers.map(|run| run.name());
        let stripes = self.stripes.iter().map(|stripe| stripe.who.name());
        let known = measures.chain(faults).chain(flows).chain(mirrors);
        let known: Vec<_> = known.chain(failovers).chain(stripes).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::Usage(format!("nothing in the scenario is measured by `{name}`")));
        }
        if !names.is_empty() {
            let kept = |own: &str| names.iter().any(|name| name == own);
            self.measures.retain(|measure| kept(measure.name()));
            self.faults.retain(|fault| kept(fault.what.name()));
            self.flows.retain(|flows| kept(flows.who.name()));
            self.mirrors.retain(|mirror| kept(mirror.through.name()));
            for failover in &mut self.failovers {
                failover.runs.retain(|run| kept(run.name()));
            }
            self.failovers.retain(|failover| !failover.runs.is_empty());
            self.stripes.retain(|stripe| kept(stripe.who.name()));
        }
        Ok(())
    }

    /// Leaves out what goes the other way, if one is given.
    ///
    /// # Errors
    /// [`Error::Usage`] if nothing is left.
    pub fn keep_direction(&mut self, direction: Option<Direction>) -> Result<(), Error> {
        let Some(direction) = direction else { return Ok(()) };
        self.measures.retain(|measure| measure.direction == direction);
        for fault in &mut self.faults {
            fault.runs.retain(|run| run.job.direction() == direction);
        }
        self.faults.retain(|fault| !fault.runs.is_empty());
        self.flows.retain(|flows| flows.direction == direction);
        self.mirrors.retain(|_| direction == Direction::Write);
        self.failovers.retain(|_| direction == Direction::Write);
        for stripe in &mut self.stripes {
            stripe.directions.retain(|own| *own == direction);
        }
        self.stripes.retain(|stripe| !stripe.directions.is_empty());
        if self.is_empty() {
            return Err(Error::Usage(format!("nothing of this is a {}", direction.name())));
        }
        Ok(())
    }

    /// Whether there is nothing to measure.
    fn is_empty(&self) -> bool {
        self.measures.is_empty()
            && self.faults.is_empty()
            && self.flows.is_empty()
            && self.mirrors.is_empty()
            && self.failovers.is_empty()
            && self.stripes.is_empty()
    }

    /// How many links there are between the two hosts.
    pub fn count_of_links(&self) -> u8 {
        let stripes = self.stripes.iter().map(Stripe::most_links);
        let failovers = self.failovers.iter().map(|_| PATHS);
        stripes.chain(failovers).max().unwrap_or(1)
    }

    /// The file that a unit keeps its bytes in, if it does.
    pub fn file_of(&self, lun: u16) -> Option<&Path> {
        self.unit(lun)?.file.as_deref()
    }

    fn unit(&self, lun: u16) -> Option<&Unit> {
        self.target.luns.iter().find(|unit| unit.number == lun)
    }
}
