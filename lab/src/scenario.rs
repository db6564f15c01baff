//! Scenarios: what to measure, over which links, against which target. They are TOML files that users write.

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

/// A scenario.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Subject of the scenario, one line.
    pub title: String,
    /// Default time limit of a measurement, seconds.
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
    /// Measurements that are made over each link.
    #[serde(default, rename = "measure")]
    pub measures: Vec<Measure>,
    /// Copies by block-copy through faults, made over each link.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
    /// Concurrent flows whose rates are limited at the initiator, run over each link.
    #[serde(default)]
    pub flows: Vec<Flows>,
    /// Disks in use that QEMU mirrors to a unit, measured over each link.
    #[serde(default, rename = "mirror")]
    pub mirrors: Vec<Mirror>,
    /// Events on the paths of a unit with two paths while it is written, measured over each link.
    #[serde(default, rename = "failover")]
    pub failovers: Vec<Failover>,
    /// Settings of the other programs that are measured in failovers.
    #[serde(default)]
    pub multipath: Multipath,
    /// Units behind links of their own that are joined to one device, measured over each link.
    #[serde(default, rename = "stripe")]
    pub stripes: Vec<Stripe>,
    /// Goals of the figures. The drawing shows which figures reach them.
    #[serde(default, rename = "goal")]
    pub goals: Vec<Goal>,
}

fn default_limit() -> u64 {
    300
}

/// Links: all combinations of the listed values.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Round-trip times, milliseconds.
    pub rtt_ms: Vec<f64>,
    /// Rates in each direction; without any, the rate is not limited.
    #[serde(default)]
    pub rate: Vec<Rate>,
    /// Lost packets in each direction, percent; without any, none is lost.
    #[serde(default)]
    pub loss: Vec<f64>,
}

/// Data of an image that is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Random bytes. They take as much memory as the image is long.
    #[default]
    Random,
    /// One hole. It takes no memory, but a program that detects zeros has almost nothing to write.
    Sparse,
    /// Random bytes in an eighth of the image, in [`EXTENTS`](crate::images::EXTENTS) extents of equal length
    /// at equal distances. The rest is holes. The image is written to a unit whose file has no data and no
    /// memory before.
    Scattered,
}

/// A kind of measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// The program that moves the bytes.
    pub who: Who,
    /// Name in the result, if it differs from the program's. `who = "program"` needs one.
    pub label: Option<String>,
    /// Number of bytes; by default the unit's size.
    pub bytes: Option<Size>,
    /// Duration in seconds instead of a number of bytes. Only for iperf3.
    pub seconds: Option<u64>,
    /// LUN of the unit.
    #[serde(default)]
    pub lun: u16,
    /// Direction of the bytes.
    #[serde(default)]
    pub direction: Direction,
    /// Data of an image that is written.
    #[serde(default)]
    pub source: Source,
    /// Words added to the program's command line. `{NAME}` is replaced by the value from `vary`.
    #[serde(default)]
    pub args: Vec<String>,
    /// The program and its arguments, for `who = "program"`. `{url}`, `{image}` and `{bytes}` are replaced.
    #[serde(default)]
    pub program: Vec<String>,
    /// Parameters to add to the result.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Lists of values. All combinations are measured, and each result has its values.
    #[serde(default)]
    pub vary: BTreeMap<String, Vec<String>>,
    /// Keys of the target for this measurement. They override the scenario's keys.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// Number of repetitions.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Time limit, seconds.
    pub limit: Option<u64>,
}

fn once() -> u32 {
    1
}

impl Measure {
    /// Returns the name in the result.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or_else(|| self.who.name())
    }

    /// Returns whether the measurement writes holes to a unit. The unit's file is replaced before such a
    /// measurement.
    pub fn is_thin(&self) -> bool {
        self.source == Source::Scattered && self.direction == Direction::Write
    }
}

impl Scenario {
    /// Reads a scenario's file.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be read. [`Error::Scenario`] with the line if it is not TOML, has an
    /// unknown key, or is inconsistent.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| Error::File { path: path.into(), cause })?;
        Self::parse(&text).map_err(|reason| Error::Scenario { path: path.into(), reason })
    }

    /// Parses a scenario. The error describes what is wrong with it, and where.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Keeps only the measurements by these programs, and the faults of these names. An empty list keeps all.
    ///
    /// # Errors
    /// [`Error::Usage`] if a name matches nothing in the scenario.
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

    /// Keeps only measurements of this direction, if one is given.
    ///
    /// # Errors
    /// [`Error::Usage`] if no measurement is left.
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

    /// Returns whether there is nothing to measure.
    fn is_empty(&self) -> bool {
        self.measures.is_empty()
            && self.faults.is_empty()
            && self.flows.is_empty()
            && self.mirrors.is_empty()
            && self.failovers.is_empty()
            && self.stripes.is_empty()
    }

    /// Returns the number of links between the two hosts.
    pub fn count_of_links(&self) -> u8 {
        let stripes = self.stripes.iter().map(Stripe::most_links);
        let failovers = self.failovers.iter().map(|_| PATHS);
        stripes.chain(failovers).max().unwrap_or(1)
    }

    /// Returns the file of a unit, if it has one.
    pub fn file_of(&self, lun: u16) -> Option<&Path> {
        self.unit(lun)?.file.as_deref()
    }

    fn unit(&self, lun: u16) -> Option<&Unit> {
        self.target.luns.iter().find(|unit| unit.number == lun)
    }
}
